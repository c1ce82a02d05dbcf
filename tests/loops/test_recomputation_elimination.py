"""What a loop computes anyway is not computed again behind it; sums and splits of products over all steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstm_lower.graph.dump import dump
from lstm_lower.passes.loops.kernel_selection import KernelSelection
from lstm_lower.passes.loops.recomputation_elimination import RecomputationElimination
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.loops.test_each_pass import check, parsed, quick, shown
from tests.support.loop_checks import run
from tests.support.loop_models import LoopModel

# An LSTM's step without its products, and what a gradient makes of it behind the loop.
CELL = """
loops ({kind}[T,B,3] xs, {kind}[B,3] first, {kind}[1,B,3] first_row, {kind}[3] k) => ({kind}[B,3] last, {results})
{{
  one = Constant <value = {kind} {{{one}}}> ()
  zero = Constant <value = int64[1] {{0}}> ()
  start = Constant <value = int64[1] {{{start}}}> ()
  end = Constant <value = int64[1] {{{end}}}> ()
  c0 = Squeeze(first_row, zero)
  last, _, is, fs, gs, cs, hs, ps = Scan <num_scan_inputs = 1, {directions}
    body = step ({kind}[B,3] h, {kind}[B,3] c, {kind}[B,3] x)
      => ({kind}[B,3] h2, {kind}[B,3] c2, {kind}[B,3] i, {kind}[B,3] f, {kind}[B,3] g, {kind}[B,3] c3, {kind}[B,3] h3,
          {kind}[B,6] p)
    {{ a = Add(h, x) i = Sigmoid(a) b = Mul(a, k) f = Sigmoid(b) g = Tanh(a) v = Mul(f, c) u = Mul(i, g) c2 = Add(v, u)
       t = Tanh(c2) h2 = Mul(i, t) c3 = Identity(c2) h3 = Identity(h2) p = Concat <axis = 1> (i, f)
       q = Mul(i, k) }}> (first, c0, xs)
  cut = Slice(cs, start, end, zero)
  before = Concat <axis = 0> ({order})
  ts = Tanh(cs)
  ip, fp = Split <axis = 2, num_outputs = 2> (ps)
  {nodes}
}}"""
SEQUENCES = ["xs", "is", "fs", "gs", "cs", "hs", "ts", "before", "ip", "fp", "k", "one"]


def cell(draw: Any) -> LoopModel:
    """Products behind the loop of sequences, of one plus and minus them, and of values that stand for nothing."""
    reverse = draw(st.booleans())
    made = "1, 1, 1, 1, 1, 1" if draw(st.booleans()) or not reverse else "1, 1, 1, 0, 1, 1"
    # The values before each step, or something that only looks like them.
    order, bounds = ("cut, first_row", ("1", str(1 << 40))) if reverse else ("first_row, cut", ("0", "-1"))
    if draw(st.integers(0, 3)) == 0:
        order = draw(st.sampled_from(["cut, first_row", "first_row, cut"]))
    if draw(st.integers(0, 3)) == 0:
        bounds = draw(st.sampled_from([("1", str(1 << 40)), ("0", "-1")]))
    nodes: list[str] = []
    results: list[str] = []
    made_before: list[str] = []
    for number in range(draw(st.integers(1, 3))):
        factors = []
        for place in range(draw(st.integers(2, 4))):
            # What others read too, products among it.
            value = draw(st.sampled_from([*SEQUENCES, *SEQUENCES, *made_before]))
            op = draw(st.sampled_from(["", "", "Sub", "Add"]))
            if not op:
                factors.append(value)
            if op or draw(st.integers(0, 4)) == 0:
                name = f"d{number}_{place}"
                nodes.append(f"{name} = {op or 'Sub'}(one, {value})")
                factors.append(name)
                if draw(st.booleans()):
                    nodes.append(f"{name}b = Add(one, {value})")
                    factors.append(f"{name}b")
        product = factors[0]
        for place, factor in enumerate(factors[1:]):
            nodes.append(f"m{number}_{place} = Mul({product}, {factor})")
            product = f"m{number}_{place}"
        nodes.append(f"y{number} = Mul({product}, gs)")
        results.append(f"y{number}")
        made_before += [f"m{number}_0", f"y{number}"]
    extra = draw(st.lists(st.sampled_from(["cs", "is", "ts", "before"]), unique=True, max_size=2))
    steps, batch = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    text = CELL.format(
        kind="float",
        one="1.0",
        results=", ".join(f"float[T,B,3] {name}" for name in (*results, *extra)),
        start=bounds[0],
        end=bounds[1],
        order=order,
        directions=f"scan_input_directions = [1], scan_output_directions = [{made}]," if reverse else "",
        nodes="\n  ".join(nodes),
    )
    if draw(st.booleans()):
        text = text.replace("[T,", f"[{steps},").replace("B,", f"{batch},")
    return parsed(text, xs=(steps, batch, 3), first=(batch, 3), first_row=(1, batch, 3), k=(3,))


@quick
@given(data=st.data())
def test_reuse_keeps_results(data: st.DataObject) -> None:
    check(cell(data.draw), RecomputationElimination())


GRADIENT = """
  ni = Sub(one, is) a = Mul(ni, is) di = Mul(a, gs)
  nf = Sub(one, fs) b = Mul(nf, fs) df = Mul(b, before)
  ng = Sub(one, gs) pg = Add(one, gs) d = Mul(ng, pg) dg = Mul(d, is)
  nt = Sub(one, ts) pt = Add(one, ts) e = Mul(nt, pt) dc = Mul(e, is)"""
RESULTS = ("di", "df", "dg", "dc")


def gradient(**changed: str) -> LoopModel:
    fields = {"start": "0", "end": "-1", "order": "first_row, cut", "directions": "", "nodes": GRADIENT, **changed}
    results = ", ".join(f"float[T,B,3] {name}" for name in RESULTS)
    text = CELL.format(kind="float", one="1.0", results=results, **fields)
    return parsed(text, xs=(4, 2, 3), first=(2, 3), first_row=(1, 2, 3), k=(3,))


def test_reuse(golden: Golden) -> None:
    shown(golden, gradient(), RecomputationElimination())


def outside(case: LoopModel, step: LoopPass) -> list[str]:
    """Operators behind the loop that are left after a pass, constants apart."""
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    step(work)
    nodes = [node.op_type for node in work.graph]
    return sorted(op for op in nodes[nodes.index("Scan") + 1 :] if op != "Constant")


def test_a_gradient_finds_the_products_of_the_step() -> None:
    """Per sigmoid gate one product and one difference is left, of a tanh its derivative; no tanh(c), no c of before."""
    assert outside(gradient(), RecomputationElimination()) == ["Add"] * 2 + ["Mul"] * 6 + ["Split"] + ["Sub"] * 4


def test_a_regrouped_product_is_a_factor_of_another() -> None:
    again = gradient(nodes=GRADIENT.replace("df = Mul(b, before)", "bb = Mul(b, di) df = Mul(bb, before)"))
    check(again, RecomputationElimination(), applies=True)
    assert outside(again, RecomputationElimination()) == ["Add"] * 2 + ["Mul"] * 7 + ["Split"] + ["Sub"] * 4


def test_a_derivative_of_tanh_keeps_its_digits() -> None:
    """`a - p*b` for `a * (1-b) * (1+b)` would save nodes, and lose what is left where b saturates."""
    case = gradient()
    case.feeds["xs"][:] = np.linspace(2.0, 7.0, 24).reshape(4, 2, 3)
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    RecomputationElimination()(work)
    before, after = run(case.model, case.feeds, optimised=False), run(ir.to_proto(work), case.feeds, optimised=False)
    for left, right in zip(before, after, strict=True):
        np.testing.assert_allclose(right, left, rtol=5e-7)


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        # What stands one step later, or turned round, is something else.
        ({"order": "cut, first_row"}, ["Concat", "Slice"]),
        ({"start": "1", "end": str(1 << 40)}, ["Concat", "Slice"]),
        ({"directions": "scan_input_directions = [1], scan_output_directions = [0, 0, 0, 0, 0, 0],"}, ["Tanh", "Add"]),
    ],
)
def test_reuse_tells_look_alikes_apart(changed: dict[str, str], left: list[str]) -> None:
    kept = outside(gradient(**changed), RecomputationElimination())
    assert all(op in kept for op in left)
    check(gradient(**changed), RecomputationElimination())


SPLITS = """
loops (float[T,B,3] xs, float[B,3] first, int64[2] sizes, int64[2] others)
  => (float[B,3] last, float[T,B,L] p, float[T,B,M] q)
{
  last, ys = Scan <num_scan_inputs = 1, body = step (float[B,3] s, float[B,3] x) => (float[B,3] u, float[B,3] y)
    { y = Tanh(s) a, b = Split <axis = 1> (y, sizes) c = Concat <axis = 1> (b, a) u = Add(c, x) }> (first, xs)
  p, q = Split <axis = 2> (ys, SIZES)
}"""


@pytest.mark.parametrize(("sizes", "left"), [("sizes", 0), ("others", 1)])
def test_splits_of_sizes_known_at_run_time_only(sizes: str, left: int) -> None:
    case = parsed(SPLITS.replace("SIZES", sizes), xs=(2, 2, 3), first=(2, 3))
    case.feeds |= {"sizes": np.array([1, 2]), "others": np.array([2, 1])}
    check(case, RecomputationElimination(), applies=not left)
    assert outside(case, RecomputationElimination()).count("Split") == left


SUMS = """
loops ({steps} xs, {steps} gs, float[B,{units}] first, float[{units},{units}] w, float[{units}] b)
  => (float[B,{units}] last, {steps} ys, {parts}, {total} sums)
{{
  last, ys = Scan <num_scan_inputs = 1, body = step (float[B,{units}] s, float[B,{units}] x)
      => (float[B,{units}] u, float[B,{units}] y)
    {{ u = Add(s, x) y = Tanh(u) }}> (first, xs)
  {weight}
  product = MatMul(gs, v)
  {whole}
  sizes = Constant <value = int64[2] {{{sizes}}}> ()
  p, q = Split <axis = {axis}> (whole, sizes)
  axes = Constant <value = int64[{count}] {{{axes}}}> ()
  sums = ReduceSum <keepdims = {keep}> (ys, axes)
}}"""


def sums(draw: Any, *, batch: int, units: int) -> LoopModel:
    steps, keep, first = draw(st.integers(1, 3)), draw(st.integers(0, 1)), draw(st.integers(1, units - 1))
    text = SUMS.format(
        steps=draw(st.sampled_from([f"float[T,B,{units}]", f"float[{steps},B,{units}]"])),
        units=units,
        parts=f"float[T,B,{first}] p, float[T,B,{units - first}] q",
        total=f"float[1,1,{units}]" if keep else f"float[{units}]",
        weight=draw(st.sampled_from(["v = Transpose <perm = [1, 0]> (w)", "v = Neg(w)"])),
        whole=draw(
            st.sampled_from(["whole = Add(product, b)", "whole = Add(b, product)", "whole = Identity(product)"])
        ),
        sizes=f"{first}, {units - first}",
        axis=draw(st.sampled_from([2, -1])),
        count=2,
        axes=draw(st.sampled_from(["0, 1", "-2, 0"])),
        keep=keep,
    )
    text = text.replace("B,", f"{batch},") if draw(st.booleans()) else text
    feeds = dict.fromkeys(("xs", "gs"), (steps, batch, units))
    return parsed(text, **feeds, first=(batch, units), w=(units, units), b=(units,))


@quick
@given(data=st.data())
def test_sums_and_parts_of_products_keep_results(data: st.DataObject) -> None:
    batch, units = data.draw(st.sampled_from([1, 2, 8, 64])), data.draw(st.sampled_from([3, 256]))
    check(sums(data.draw, batch=batch, units=units), KernelSelection())


def fixed_sums(batch: int) -> LoopModel:
    text = SUMS.format(
        steps=f"float[2,{batch},256]", units=256, parts=f"float[2,{batch},156] p, float[2,{batch},100] q", keep=0,
        total="float[256]", weight="v = Transpose <perm = [1, 0]> (w)", whole="whole = Add(product, b)",
        sizes="156, 100", axis=-1, count=2, axes="0, 1",
    )  # fmt: skip
    feeds = dict.fromkeys(("xs", "gs"), (2, batch, 256))
    return parsed(text.replace("B,", f"{batch},"), **feeds, first=(batch, 256), w=(256, 256), b=(256,))


def test_sums_and_parts_of_products_over_rows(golden: Golden) -> None:
    work = ir.from_proto(fixed_sums(192).model)
    InferShapesPass()(work)
    before = dump(work)
    assert KernelSelection()(work).modified
    golden("loop_kernel-selection_divided", before=before, after=dump(work))


def test_few_rows_stay() -> None:
    """A small sum, and a product with more columns than rows, whose weight would cost more to copy."""
    assert {"ReduceSum", "Split"} <= set(outside(fixed_sums(16), KernelSelection()))
    assert "ReduceSum" not in outside(fixed_sums(192), KernelSelection())


def test_a_product_of_a_part_of_a_divided_product() -> None:
    text = """g (float[40,4] x, float[4] first, float[4,6] w, float[3,4] v)
      => (float[4] last, float[40,3] q, float[40,2] s, float[40,2] t) <int64[2] k = {3, 3}, int64[2] n = {2, 2}>
      { last = Scan <num_scan_inputs = 1, body = step (float[4] a, float[4] b) => (float[4] c) { c = Add(a, b) }>
          (first, x)
        m = MatMul(x, w)  p, q = Split <axis = 1> (m, k)  o = MatMul(p, v)  s, t = Split <axis = 1> (o, n) }"""
    case = parsed(text, x=(40, 4), first=(4,), w=(4, 6), v=(3, 4))
    check(case, KernelSelection())
    # Two parts of each.
    assert outside(case, KernelSelection()).count("MatMul") == 4


def test_parsed_models_are_valid() -> None:
    for case in (gradient(), fixed_sums(16)):
        onnx.checker.check_model(case.model, full_check=True)
