"""Steps that stand one after the other become a Scan again: what is rolled, what is not, and that results stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser
from onnx_ir.passes.common import LiftConstantsToInitializersPass

import lstm_lower as ll
from lstm_lower.graph.dump import dump
from lstm_lower.graph.edit import remove_unread
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.loop_unrolling import LoopUnrolling
from lstm_lower.passes.loops.rerolling import LoopRerolling
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run
from tests.support.loop_models import LoopModel, loop_models

T, B, H = 6, 2, 3
WEIGHTS = {"w": (H, H), "u": (H, H), "v": (H, H), "h0": (B, H)}


@dataclasses.dataclass(frozen=True)
class Form:
    """Steps of a cell, written out.

    Attributes:
        step: the nodes of step `t`, which make `h{t+1}` from `h{t}`.
        before: nodes before the first step.
        after: nodes behind the last step.
        outputs: names and types.
        steps: in what order.
    """

    step: Callable[[int], str]
    before: str = ""
    after: str = "stacked = Concat <axis = 0> ({all})"
    outputs: str = f"float[{T * B},{H}] stacked"
    steps: range = range(T)

    def model(self) -> onnx.ModelProto:
        made = ", ".join(f"h{t + 1}" for t in self.steps)
        nodes = [self.before, *(self.step(t) for t in self.steps), self.after.replace("{all}", made)]
        constants = [f"i{t} = Constant <value = int64 {{{t}}}> ()" for t in range(T + 1)]
        constants += [f"m{t} = Constant <value = int64 {{-{t}}}> ()" for t in range(T + 1)]
        constants += [f"j{t} = Constant <value = int64[1] {{{t}}}> ()" for t in range(T + 1)]
        text = "\n".join(constants + nodes)
        inputs = ", ".join(["float[6,2,3] x", *(f"float{list(shape)} {name}" for name, shape in WEIGHTS.items())])
        return parser.parse_model(
            f'<ir_version: 9, opset_import: ["": 18]> g ({inputs}) => ({self.outputs}) {{\n{text}\n}}'
        )


def cell(t: int, element: str = "", product: str = "MatMul (h{t}, w)", last: str = "Tanh") -> str:
    element = element or f"x{t} = Gather (x, i{t})"
    inner = product.replace("{t}", str(t))
    return f"{element}\na{t} = {inner}\nb{t} = MatMul (x{t}, u)\nc{t} = Add (a{t}, b{t})\nh{t + 1} = {last} (c{t})\n"


def sliced(t: int) -> str:
    return f"y{t} = Slice (x, j{t}, j{t + 1}, j0)\nx{t} = Squeeze (y{t}, j0)"


def split(*, axis: int, count: int = T) -> str:
    return f"{', '.join(f'y{t}' for t in range(count))} = Split <axis = {axis}, num_outputs = {count}> (x)"


def shared(t: int) -> str:
    """A step that reads what the first one makes of its state."""
    return f"x{t} = Gather (x, i{t})\nb{t} = MatMul (x{t}, u)\nc{t} = Add (a0, b{t})\nh{t + 1} = Tanh (c{t})\n"


FINAL = {"after": "last = Identity (h6)", "outputs": "float[2,3] last"}
ROLLED = {
    "gathered": Form(cell),
    "gathered along another axis": Form(
        lambda t: cell(t, f"x{t} = Gather <axis = 1> (z, i{t})"), before="z = Transpose <perm = [1, 0, 2]> (x)"
    ),
    "gathered from behind": Form(lambda t: cell(t, f"x{t} = Gather (x, m{T - t})")),
    "kept axes": Form(lambda t: cell(t, f"y{t} = Gather (x, j{t})\nx{t} = Squeeze (y{t}, j0)")),
    "sliced": Form(lambda t: cell(t, sliced(t))),
    "split": Form(lambda t: cell(t, f"x{t} = Squeeze (y{t}, j0)"), before=split(axis=0)),
    "against time": Form(lambda t: cell(t, f"x{t} = Gather (x, i{T - 1 - t})")),
    "against time, with the time": Form(
        lambda t: cell(
            t, f"f{t} = Constant <value = float {{{t}.5}}> ()\ng{t} = Gather (x, i{T - 1 - t})\nx{t} = Mul (g{t}, f{t})"
        )
    ),
    "both ways": Form(
        lambda t: cell(t, f"g{t} = Gather (x, i{t})\nr{t} = Gather (x, i{T - 1 - t})\nx{t} = Sub (g{t}, r{t})")
    ),
    "in any order": Form(lambda t: cell(t, f"x{t} = Gather (x, i{t * 5 % 4})")),
    "a part of the sequence": Form(cell, steps=range(1, T), before="h1 = Identity (h0)", outputs="float[10,3] stacked"),
    "other values": Form(
        lambda t: cell(t, f"x{t} = {'Sin' if t % 2 else 'Exp'} (e{t})"),
        before="\n".join(f"e{t} = Gather (x, i{t})" for t in range(T)),
    ),
    "the time": Form(
        lambda t: cell(
            t, f"f{t} = Constant <value = float {{{t}.5}}> ()\ng{t} = Gather (x, i{t})\nx{t} = Mul (g{t}, f{t})"
        )
    ),
    "joined from behind": Form(
        cell, after=f"stacked = Concat <axis = 0> ({', '.join(f'h{t}' for t in range(T, 0, -1))})"
    ),
    "joined along the last axis": Form(
        cell, after="stacked = Concat <axis = 1> ({all})", outputs=f"float[{B},{T * H}] stacked"
    ),
    "joined with others": Form(
        cell, after="stacked = Concat <axis = 0> (h0, {all}, h3)", outputs="float[16,3] stacked"
    ),
    "single steps": Form(cell, after="p = Exp (h3)", outputs="float[2,3] p, float[2,3] h2, float[2,3] h6"),
    "the last step": Form(cell, **FINAL),
    "a simplified first step": Form(
        lambda t: cell(t) if t else "x0 = Gather (x, i0)\nb0 = MatMul (x0, u)\nh1 = Tanh (b0)"
    ),
    "states that begin as one value": Form(
        lambda t: (
            f"x{t} = Gather (x, i{t})\na{t} = MatMul (h{t}, w)\nr{t} = Mul (x{t}, h{t})\n"
            + (f"s{t} = Mul (x{t}, k{t})\n" if t else "")
            + f"b{t} = Add (a{t}, {f's{t}' if t else 'r0'})\nk{t + 1} = Sin (b{t})\n"
            f"c{t} = Add (r{t}, k{t + 1})\nh{t + 1} = Tanh (c{t})"
        )
    ),
    "less of the last step": Form(
        lambda t: (
            cell(t, f"g{t} = Gather (x, i{t})\nx{t} = Mul (g{t}, k{t})")
            + (f"d{t} = MatMul (k{t}, v)\ne{t} = Add (d{t}, h{t + 1})\nk{t + 1} = Sin (e{t})" if t + 1 < T else "")
        ),
        before="k0 = Identity (h0)",
    ),
    "what was three steps before": Form(
        lambda t: cell(t, f"g{t} = Gather (x, i{t})\nx{t} = Mul (g{t}, {f'h{t - 2}' if t > 1 else f'k{t}'})"),
        before="k0 = Exp (h0)\nk1 = Cos (h0)",
    ),
    "the step before last": Form(lambda t: cell(t, product=f"MatMul (h{max(t - 1, 0)}, w)")),
    "the third step before, and what the first ones make once": Form(
        lambda t: cell(t, product=f"MatMul (h{max(t - 2, 0)}, w)") if t not in {1, 2} else shared(t)
    ),
    "a state that is read often": Form(
        lambda t: (
            f"x{t} = Gather (x, i{t})\na{t} = MatMul (s{t}, w)\nb{t} = Add (a{t}, x{t})\nc{t} = Mul (b{t}, s{t})\n"
            f"d{t} = Sub (c{t}, s{t})\ne{t} = Div (d{t}, s{t})\nh{t + 1} = Tanh (e{t})\ns{t + 1} = Sub (h{t + 1}, s{t})"
        ),
        before="s0 = Exp (h0)",
    ),
    "two states": Form(
        lambda t: (
            cell(t, product="MatMul (s{t}, w)", last="Sin") + f"d{t} = Mul (h{t}, h{t + 1})\ns{t + 1} = Cos (d{t})"
        ),
        before="s0 = Identity (h0)",
    ),
    "a weight twice in a step": Form(
        lambda t: cell(t) + f"d{t} = MatMul (h{t + 1}, w)\ne{t} = Sin (d{t})",
        after="last = Concat <axis = 0> (" + ", ".join(f"e{t}" for t in range(T)) + ")",
        outputs="float[12,3] last",
    ),
    "two layers": Form(
        lambda t: cell(t) + f"p{t} = MatMul (k{t}, v)\nq{t} = Add (p{t}, h{t + 1})\nk{t + 1} = Tanh (q{t})",
        before="k0 = Identity (h0)",
        after="last = Identity (k6)",
        outputs="float[2,3] last",
    ),
    "without sequences": Form(lambda t: f"a{t} = MatMul (h{t}, w)\nh{t + 1} = Tanh (a{t})"),
    "without products": Form(lambda t: f"x{t} = Gather (x, i{t})\na{t} = Mul (h{t}, x{t})\nh{t + 1} = Tanh (a{t})"),
}


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {x.name: [dim.dim_value for dim in x.type.tensor_type.shape.dim] for x in model.graph.input}
    return {name: random.standard_normal(shape).astype(np.float32) * 0.5 for name, shape in shapes.items()}


def rolled(model: onnx.ModelProto, tied: str = "-") -> onnx.ModelProto:
    work = ir.from_proto(model)
    InferShapesPass()(work)
    step = LoopRerolling(tied=lambda graph: {x for node in graph for x in node.outputs if str(x.name).startswith(tied)})
    step.verify_each = True
    step(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    feeds = feeds_of(model)
    assert_same(run(model, feeds), run(after, feeds), tolerance=1e-6)
    return after


def scans(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "Scan"]


@pytest.mark.parametrize("form", ROLLED.values(), ids=ROLLED)
def test_what_is_rolled(form: Form) -> None:
    after = rolled(form.model())
    assert len(scans(after)) == 1
    left = {node.op_type for node in after.graph.node} & {"MatMul", "Tanh"}
    apart = ("a simplified first step", "less of the last step", "what was three steps before")
    assert not left or form in [ROLLED[name] for name in apart]


def with_other_step(change: Callable[[str], str], at: int = 3) -> Form:
    return Form(lambda t: change(cell(t)) if t == at else cell(t))


KEPT = {
    "three steps": Form(cell, steps=range(3), outputs="float[6,3] stacked"),
    "other weights": with_other_step(lambda text: text.replace("w)", "v)")),
    "another operator": with_other_step(lambda text: text.replace("Tanh", "Sin")),
    "another attribute": Form(lambda t: cell(t, last=f"Elu <alpha = {1.5 if t == 3 else 0.5}>")),
    "now one and now two steps before": Form(lambda t: cell(t, product=f"MatMul (h{t - t % 2}, w)")),
    "results of unknown rank": Form(
        lambda t: cell(t) + f"e{t} = Reshape (h{t + 1}, n)",
        before="""r = ReduceSum <keepdims = 0> (h0) q = Equal (r, r) s = Shape (h0) two = Shape (s) p = Expand (q, two)
          n = Compress (s, p)""",
        after="last = Identity (e3)",
        outputs="float[2,3] last",
    ),
    "a state that shrinks": Form(
        lambda t: (
            f"k{t} = Cast <to = 7> (i{1 + (t < 3)}) e{t} = Reshape (k{t}, j1) h{t + 1} = Slice (h{t}, j0, e{t}, j0)"
        ),
        after="last = Identity (h6)",
        outputs="float[1,3] last",
    ),
    "a sum": Form(
        lambda t: f"s{t} = Gather (x, i{t})\nx{t} = {'Sin' if t % 2 else 'Cos'} (s{t})\nh{t + 1} = Add (h{t}, x{t})",
        after="last = Identity (h6)",
        outputs="float[2,3] last",
    ),
    "layers": Form(
        lambda t: f"a{t} = MatMul (h{t}, w{t})\nh{t + 1} = Tanh (a{t})",
        before="\n".join(f"w{t} = Constant <value = float[3,3] {{{', '.join([f'0.{t}'] * 9)}}}> ()" for t in range(T)),
    ),
    "other axes in each step": Form(
        lambda t: f"r{t} = ReduceMax (h{t}, j{t % 2})  s{t} = Tanh (r{t})  h{t + 1} = Sub (h{t}, s{t})"
    ),
}


@pytest.mark.parametrize("form", KEPT.values(), ids=KEPT)
def test_what_stays(form: Form) -> None:
    """Where one step differs, at most the steps before and behind it become a loop; here these are too few."""
    model = form.model()
    assert scans(rolled(model)) == []


@pytest.mark.parametrize(("tied", "loops"), [("a", 1), ("c", 1), ("h", 0)])
def test_what_is_tied_is_not_handed_on(tied: str, loops: int) -> None:
    assert len(scans(rolled(Form(cell).model(), tied))) == loops


UNROLLED = Form(cell, after="last = Identity (h6)", outputs="float[2,3] last")
IN_FUNCTION = """<ir_version: 9, opset_import: ["": 18, "mine": 1]>
g (float[6,2,3] x, float[3,3] u, float[2,3] h0) => (float[2,3] last) { last = mine.walk (x, u, h0) }
<domain: "mine", opset_import: ["": 18]> walk (x, u, h0) => (last) {
  last = Scan <num_scan_inputs = 1, body = step (h, e) => (n) { p = MatMul (e, u) s = Add (p, h) n = Tanh (s) }> (h0, x)
}"""
CALLED = """<ir_version: 9, opset_import: ["": 18, "mine": 1]>
g (float[4,2,3] x, float[3,3] w, float[3,3] u, float[2,3] h0) => (float[2,3] last) {
  e0, e1, e2, e3 = Split <axis = 0, num_outputs = 4> (x)
  h1 = mine.cell (e0, h0, w, u)
  h2 = mine.cell (e1, h1, w, u)
  h3 = mine.cell (e2, h2, w, u)
  last = mine.cell (e3, h3, w, u)
}
<domain: "mine", opset_import: ["": 18]> cell (e, h, w, u) => (n) {
  axis = Constant <value = int64[1] {0}> ()
  x = Squeeze (e, axis)
  a = MatMul (x, u)
  b = MatMul (h, w)
  s = Add (a, b)
  n = Tanh (s)
}"""
# Each step reads nothing but the one before: a loop would take longer.
ITERATION = Form(
    lambda t: f"q{t} = Div (h0, h{t}) s{t} = Add (q{t}, h{t}) p{t} = MatMul (s{t}, u) h{t + 1} = Tanh (p{t})",
    after="last = Identity (h6)",
    outputs="float[2,3] last",
)


@pytest.mark.parametrize(
    ("model", "schedule", "loops", "products"),
    [
        (UNROLLED.model(), "auto", 1, 1),
        (UNROLLED.model(), "unroll", 0, 12),
        (ITERATION.model(), "auto", 0, 6),
        (parser.parse_model(IN_FUNCTION), "auto", 1, 1),
        (parser.parse_model(CALLED), "auto", 1, 1),
    ],
    ids=["steps", "no loops wanted", "no sequence", "in a function", "calls"],
)
def test_optimize_rolls_what_gets_faster(model: onnx.ModelProto, schedule: str, loops: int, products: int) -> None:
    """Products of elements of a sequence leave the loop, so that one of all steps is left outside."""
    optimized = ll.optimize(model, schedule, verify_each=True)
    kinds = [node.op_type for node in optimized.graph.node]
    assert (kinds.count("Scan"), kinds.count("MatMul") + kinds.count("Gemm")) == (loops, products)
    assert not optimized.functions
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.uniform(0.5, 1, [dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.graph.input
    }
    assert_same(run(model, feeds, optimised=False), run(optimized, feeds, optimised=False))


def test_numbers_of_steps_go() -> None:
    """What nothing read before stays: it may be a training step's state."""
    work = ir.from_proto(UNROLLED.model())
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(work)
    unread = {"m0", "m6", "j6"}
    assert {"i0", "i5", *unread} <= set(work.graph.initializers)
    assert LoopRerolling()(work).modified
    assert unread <= set(work.graph.initializers)
    assert not {"i0", "i5"} & set(work.graph.initializers)


def test_golden(golden: Golden) -> None:
    model = Form(cell, after="last = Identity (h4)", outputs="float[2,3] last", steps=range(4)).model()
    before = ir.from_proto(model)
    remove_unread(before.graph)
    golden("loop_rerolling", before=dump(before), after=dump(ir.from_proto(rolled(model))))


@pytest.mark.slow
@tried(15)
@given(case=loop_models(st.integers(4, 6)))
def test_unrolled_loops(case: LoopModel) -> None:
    """Random loops, unrolled and rolled again."""
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    LoopUnrolling()(work)
    LoopRerolling()(work)
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    assert_same(run(case.model, case.feeds, optimised=False), run(after, case.feeds, optimised=False))


def test_a_folded_first_step() -> None:
    """Where the product of an initial state is folded, steps still end with their new state, which alone is carried."""
    first = "x0 = Gather (x, i0)\nb0 = MatMul (x0, u)\nc0 = Add (h0, b0)\nh1 = Tanh (c0)"
    (scan,) = scans(rolled(Form(lambda t: cell(t) if t else first).model()))
    body = scan.attribute[0].g
    assert len(scan.input) == 2
    assert body.output[0].name in {output for node in body.node if node.op_type == "Tanh" for output in node.output}


@pytest.mark.parametrize(
    ("read", "loops"),
    [
        ("Mul (e, f{t})", 1),
        ("Mul (e, z)", 1),
        ("Mul (e, d{t})", 1 + T),
        ("ReduceSum <keepdims = 0> (g{t}, j0)", 1 + T),
        ("ReduceSum <keepdims = 0> (h{t}, j0)", T),
    ],
)
def test_loops_within_steps(read: str, loops: int) -> None:
    """Each is part of its step where all read the same from outside: no number `d`, element `g` or state `h`."""

    def step(t: int) -> str:
        numbers = f"f{t} = Constant <value = float {{0.5}}> ()\nd{t} = Constant <value = float {{0.{t}}}> ()"
        body = f"p = {read.replace('{t}', str(t))} n = Add (s, p) o = Sin (n)"
        inner = f"inner (float[3] s, float[3] e) => (float[3] n, float[3] o) {{ {body} }}"
        scan = f"q{t}, x{t} = Scan <num_scan_inputs = 1, body = {inner}> (z, g{t})"
        return cell(t, f"g{t} = Gather (x, i{t})\n{numbers}\n{scan}")

    after = rolled(Form(step, before="z = Gather (h0, i0)").model())
    assert len(scans(after)) == loops


def test_what_two_steps_read() -> None:
    """The former makes it and hands it on."""

    def step(t: int) -> str:
        made = f"g{t + 1} = Gather (x, i{t + 1})\nd{t + 1} = Sin (g{t + 1})\ne{t} = Add (d{t}, d{t + 1})\n"
        return made + cell(t, f"x{t} = Mul (e{t}, d{t})")

    form = Form(step, before="g0 = Gather (x, i0)\nd0 = Sin (g0)", steps=range(T - 1), outputs="float[10,3] stacked")
    after = rolled(form.model())
    assert [node.op_type for node in after.graph.node].count("Sin") == 1
