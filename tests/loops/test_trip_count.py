"""Loops that end when a counter reaches a limit: their number of steps, and their counters without carrying them."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.induction_variables import InductionVariables
from lstm_lower.passes.loops.trip_count import TripCount
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.trace import Trace
from tests.conftest import Golden
from tests.loops.test_each_pass import check
from tests.support.examples import tried
from tests.support.loop_checks import run
from tests.support.loop_models import LoopModel

LEAST, MOST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
HOLDS = {
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
}
MIRRORED = {"Less": "Greater", "Greater": "Less", "LessOrEqual": "GreaterOrEqual", "GreaterOrEqual": "LessOrEqual"}
OPPOSITE = {"Less": "GreaterOrEqual", "Greater": "LessOrEqual", "LessOrEqual": "Greater", "GreaterOrEqual": "Less"}


@dataclasses.dataclass(frozen=True)
class Count:
    """One counter and what it is compared with.

    Attributes:
        first: its first value, an input of the model or (`constant`) a number in it.
        step: what a step adds.
        test: the comparison, `counter test limit`.
        limit: an input of the model.
        form: how the comparison is written.
    """

    first: int
    step: int
    test: str
    limit: int
    dtype: str
    constant: bool
    form: str

    def holds(self, value: int) -> bool:
        return bool(HOLDS[self.test](value, self.limit))


def while_loop(counts: list[Count], *, start: str, most: int | None) -> LoopModel | None:
    """A Loop that goes on while all comparisons hold; `None` for one that does not end soon."""
    values, steps = [count.first for count in counts], 0
    going = start != "no"
    if start == "tested":
        going = all(count.holds(count.first) for count in counts)
    while going and (most is None or steps < most):
        values = [value + count.step for value, count in zip(values, counts, strict=True)]
        limits = [np.iinfo(count.dtype) for count in counts]
        if steps > 40 or any(not i.min <= value <= i.max for value, i in zip(values, limits, strict=True)):
            return None
        steps += 1
        going = all(count.holds(value) for value, count in zip(values, counts, strict=True))
    return LoopModel(onnx.parser.parse_model(_text(counts, start, most)), _feeds(counts, start, most))


def _test(count: Count, at: int, value: str, result: str) -> str:
    form = count.form
    if form == "mirrored":
        return f"{result} = {MIRRORED[count.test]} (n{at}, {value})"
    if form == "not":
        return f"{result}o = {OPPOSITE[count.test]} ({value}, n{at}) {result} = Not ({result}o)"
    if form == "shaped":
        cast = f"{result}c = Cast <to = 7> ({value}) {result}r = Reshape ({result}c, vector)"
        limit = f"{result}n = Cast <to = 7> (n{at}) {result}s = Unsqueeze ({result}n, first)"
        return f"{cast} {limit} {result}t = {count.test} ({result}r, {result}s) {result} = Squeeze ({result}t)"
    return f"{result} = {count.test} ({value}, n{at})"


def _text(counts: list[Count], start: str, most: int | None) -> str:
    inputs, before, body, operands, parameters, results, outer = [], [], [], [], [], [], []
    for at, count in enumerate(counts):
        inputs.append(f"{count.dtype} n{at}")
        if count.constant:
            before.append(f"c{at} = Constant <value = {count.dtype} {{{count.first}}}> ()")
        else:
            inputs.append(f"{count.dtype} c{at}")
        operands.append(f"c{at}")
        parameters.append(f"{count.dtype} p{at}")
        results.append(f"{count.dtype} u{at}")
        outer.append(f"{count.dtype} e{at}")
        body.append(f"k{at} = Constant <value = {count.dtype} {{{count.step}}}> () u{at} = Add (p{at}, k{at})")
        body.append(_test(count, at, f"u{at}", f"t{at}"))
        if start == "tested":
            before.append(_test(count, at, f"c{at}", f"b{at}"))

    def both(names: list[str], result: str) -> str:
        return f"{result} = And ({names[0]}, {names[1]})" if len(names) == 2 else f"{result} = Identity ({names[0]})"

    body.append(both([f"t{at}" for at in range(len(counts))], "on"))
    if start == "tested":
        before.append(both([f"b{at}" for at in range(len(counts))], "go0"))
    if start in ("yes", "no"):
        inputs.append("bool go0")
    if most is not None:
        inputs.append("int64 most")
    given = ['""' if most is None else "most", '""' if start == "absent" else "go0", *operands, "nothing"]
    seen = f"{counts[0].dtype}[?] seen"
    inner = f"{counts[0].dtype} s"
    return f"""<ir_version: 8, opset_import: ["" : 18]>
    g ({", ".join(inputs)}) => ({", ".join([*outer, "float sum", seen])}) {{
      vector = Constant <value = int64[1] {{-1}}> ()
      first = Constant <value = int64[1] {{0}}> ()
      nothing = Constant <value = float {{0.0}}> ()
      {chr(10).join(before)}
      {", ".join([*(f"e{at}" for at in range(len(counts))), "sum", "seen"])} = Loop <body = b
        ({", ".join(["int64 i", "bool go", *parameters, "float a"])}) =>
        ({", ".join(["bool on", *results, "float a2", inner])}) {{
          {chr(10).join(body)}
          s = Identity (p0)
          f = Cast <to = 1> (p0)
          a2 = Add (a, f)
        }}> ({", ".join(given)})
    }}"""


def _feeds(counts: list[Count], start: str, most: int | None) -> dict[str, np.ndarray]:
    feeds: dict[str, Any] = {f"n{at}": np.array(count.limit, count.dtype) for at, count in enumerate(counts)}
    feeds |= {f"c{at}": np.array(count.first, count.dtype) for at, count in enumerate(counts) if not count.constant}
    return feeds | {"go0": np.array(start == "yes"), "most": np.array(most or 0, np.int64)}


def some_count(draw: Any) -> Count:
    dtype = draw(st.sampled_from(["int32", "int64"]))
    limits = np.iinfo(dtype)
    far = [int(limits.min), int(limits.max), int(limits.max) - 1]
    return Count(
        draw(st.one_of(st.integers(-4, 6), st.integers(-4, 6), st.sampled_from(far))),
        draw(st.sampled_from([1, 1, 1, -1, -1, 2, 3, -2, -3])),
        draw(st.sampled_from(sorted(HOLDS))),
        draw(st.one_of(st.integers(-4, 9), st.integers(-4, 9), st.sampled_from(far))),
        dtype,
        draw(st.booleans()),
        draw(st.sampled_from(["plain", "plain", "mirrored", "not", "shaped"])),
    )


@st.composite
def while_loops(draw: Any) -> LoopModel:
    counts = [some_count(draw) for _ in range(draw(st.integers(1, 2)))]
    start = draw(st.sampled_from(["tested", "tested", "yes", "no", "absent"]))
    case = while_loop(counts, start=start, most=draw(st.sampled_from([None, 0, -2, 3, 5])))
    assume(case is not None)
    assert case is not None
    return case


slow = tried(40)


@pytest.mark.slow
@slow
@given(case=while_loops())
def test_any_loop_that_counts(case: LoopModel) -> None:
    """Whatever the signs, the limits and the types: the same number of steps, or the loop stays as it was."""
    expected = run(case.model, case.feeds, optimised=False)
    for step in (TripCount(), InductionVariables()):
        check(case, step)
    after = ll.optimize(case.model, verify_each=True)
    for before, now in zip(expected, run(after, case.feeds), strict=True):
        np.testing.assert_array_equal(now, before)


def counted(count: Count, *, start: str = "tested", most: int | None = None) -> tuple[ir.Model, Trace, LoopModel]:
    case = while_loop([count], start=start, most=most)
    assert case is not None
    work, trace = ir.from_proto(case.model), Trace()
    InferShapesPass()(work)
    return work, trace, case


PLAIN = Count(0, 1, "Less", 5, "int32", constant=True, form="plain")


@pytest.mark.parametrize("start", ["tested", "yes", "no", "absent"])
@pytest.mark.parametrize(
    "count",
    [
        PLAIN,
        dataclasses.replace(PLAIN, limit=0),
        dataclasses.replace(PLAIN, step=3),
        dataclasses.replace(PLAIN, first=7, step=-2, test="GreaterOrEqual", limit=1),
        dataclasses.replace(PLAIN, first=3, dtype="int64", constant=False),
    ],
)
def test_the_condition_is_gone(count: Count, start: str) -> None:
    case = while_loop([count], start=start, most=None)
    assert case is not None
    check(case, TripCount(), applies=True)
    after = ll.optimize(case.model)
    (loop,) = [node for node in after.graph.node if node.op_type == "Loop"]
    assert loop.input[0]
    assert not loop.input[1]
    assert len(loop.input) == 3


def test_trip_count(golden: Golden) -> None:
    shown(golden, TripCount())


def test_induction_variables(golden: Golden) -> None:
    shown(golden, InductionVariables(), TripCount())


def shown(golden: Golden, step: TripCount | InductionVariables, *first: TripCount) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    loops (float[N,2] xs, int32 n, float[2] s) => (float[2] last, int32 c_last, float[?,2] ys) {
      zero = Constant <value = int32 {0}> ()
      start = Less (zero, n)
      c_last, last, ys = Loop <body = step (int64 i, bool go, int32 c, float[2] a)
        => (bool on, int32 c2, float[2] a2, float[2] y) {
          one = Constant <value = int32 {1}> ()
          c2 = Add (c, one)
          on = Less (c2, n)
          y = Gather <axis = 0> (xs, c)
          a2 = Add (a, y)
        }> ("", start, zero, s)
    }"""
    work = ir.from_proto(onnx.parser.parse_model(text))
    InferShapesPass()(work)
    for earlier in first:
        earlier(work)
    before = dump(work)
    assert step(work).modified
    verify(work)
    golden(f"loop_{step.name}", before=before, after=dump(work))


REFUSED = {
    "a carried limit": ("n2 = Add (n, n) c2 = Add (c, one) on = Less (c2, n)", "no step adds the same number"),
    "a counter that doubles": ("n2 = Identity (n) c2 = Add (c, c) on = Less (c2, n)", "no step adds the same number"),
    "the wrong way": ("n2 = Identity (n) c2 = Sub (c, one) on = Less (c2, limit)", "towards its limit"),
    "another comparison": (
        "n2 = Identity (n) c2 = Add (c, one) same = Equal (c2, limit) on = Not (same)",
        "more than comparisons",
    ),
    "a float": (
        "n2 = Identity (n) c2 = Add (c, one) f = Cast <to = 1> (c2) g = Cast <to = 1> (limit) on = Less (f, g)",
        "more than comparisons",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_certain_is_refused(case: str) -> None:
    body, reason = REFUSED[case]
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    loops (int64 limit, int64 n0, int64 most) => (int64 c_last, int64 n_last) {{
      first = Constant <value = int64 {{1}}> ()
      yes = Constant <value = bool {{1}}> ()
      c_last, n_last = Loop <body = step (int64 i, bool go, int64 c, int64 n) => (bool on, int64 c2, int64 n2) {{
          one = Constant <value = int64 {{1}}> ()
          {body}
        }}> (most, yes, first, n0) }}"""
    model = onnx.parser.parse_model(text)
    trace = Trace()
    after = ll.optimize(model, trace=trace, verify_each=True)
    assert any(reason in refusal.reason for refusal in trace.refusals if refusal.pass_name == "trip-count")
    for limit in (-2, 0, 3, 30):
        feeds = {"limit": np.array(limit), "n0": np.array(4), "most": np.array(6)}
        assert run(model, feeds, optimised=False) == run(after, feeds)


def test_a_loop_without_counters_is_left_as_it_is() -> None:
    """Also where more is known of what it carries than its body declares."""
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 18]>
    program (float[N] first) => (float[N] last) <bool true = {1}, int64 two = {2}> {
        last = Loop (two, true, first) <body = step (int64 i, bool going, float[] x) => (bool again, float[] y) {
            y = Add (x, x)
            again = Identity (going)
        }>
    }""")
    step = InductionVariables()
    step.verify_each = True
    assert not step(model).modified


def test_a_counter_whose_first_value_is_of_unknown_rank() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
    program (int64[1] data, int64[N] shape, float[3] x) => (int64 last, float[T,3] ys)
    <bool true = {1}, int64 two = {2}> {
        first = Reshape (data, shape)
        last, ys = Loop (two, true, first) <body = step (int64 i, bool going, int64 k)
          => (bool again, int64 next, float[3] y) {
            next = Add (k, two) again = Identity (going) f = Cast <to = 1> (k) y = Mul (x, f)
        }>
    }""")
    feeds = {"data": np.array([5]), "shape": np.zeros(0, np.int64), "x": np.ones(3, np.float32)}
    for before, now in zip(run(model, feeds), run(ll.optimize(model, verify_each=True), feeds), strict=True):
        np.testing.assert_array_equal(now, before)
