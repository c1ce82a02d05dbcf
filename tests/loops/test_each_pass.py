"""Every loop pass has a golden; here property tests of those whose loops have to be of a kind of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.kernel_selection import KernelSelection
from lstm_lower.passes.loops.reassociation import Reassociation
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run
from tests.support.loop_models import LoopModel
from tests.support.loop_passes import alone, loop_passes

TESTS = Path(__file__).parents[1]
quick = tried(8)


@pytest.mark.parametrize("step", loop_passes(), ids=lambda step: step.name)
def test_there_is_a_golden(step: type[LoopPass]) -> None:
    assert (TESTS / "golden" / f"loop_{step.name}.txt").exists()


# The inner loop's result is the outer body's own; half of what the inner one walks along serves nothing.
NESTED = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,5,6] xs, float[6] s0) => (float[6] d, float[4,6] e)
{
  d, e = Scan <num_scan_inputs = 1, body = outer (float[6] s, float[5,6] x) => (float[6] u, float[6] y) {
    u, z = Scan <num_scan_inputs = 2, body = inner (float[6] t, float[6] v, float[6] w) => (float[6] next, float[6] n) {
      q = Add(t, v)
      a, b = Split<num_outputs = 2>(q)
      ta = Tanh(a)
      tb = Tanh(b)
      next = Concat<axis = 0>(ta, tb)
      n = Neg(t)
    }> (s, x, x)
    y = Neg(s)
  }> (s0, xs)
}"""


# One value leaves the loop in both directions, by an Identity in that in which the loop walks.
BOTH_WAYS = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,2,2] xs, float[2,2] s0) => (float[2,2] d, float[4] there, float[4] back)
{
  zero = Constant<value_ints = [0, 1]>()
  d, there, back = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [0, 1],
    body = step (float[2,2] s, float[2,2] x) => (float[2,2] u, float m, float again) {
    u = Add(s, x)
    m = ReduceMean<keepdims = 0>(u, zero)
    again = Identity(m)
  }> (s0, xs)
}"""


# The weight and the bias are the same at every step, and made in the body.
INVARIANT = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,16,256] xs, float[16,256] s0, float[256,256] w, float[256] v) => (float[16,256] d, float[4,16,256] e)
{
  d, e = Scan <num_scan_inputs = 1,
    body = step (float[16,256] s, float[16,256] x) => (float[16,256] u, float[16,256] y) {
    weight = Tanh(w)
    bias = Tanh(v)
    p = MatMul(s, weight)
    q = Add(p, bias)
    t = Add(q, x)
    u = Tanh(t)
    y = MatMul(u, weight)
  }> (s0, xs)
}"""


# A call that nobody reads keeps the innermost loop, which is the same at every step, from being seen as that.
UNREAD = """
<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
loops (float[4,6] xs, float[3,6] w, float[6] s0) => (float[4,6] e)
{
  d, e = Scan <num_scan_inputs = 1, body = outer (float[6] r, float[6] x) => (float[6] u, float[6] y) {
    p = Scan <num_scan_inputs = 1, body = middle (float[6] s, float[6] z) => (float[6] n) {
      m = Scan <num_scan_inputs = 1, body = inner (float[6] t, float[6] v) => (float[6] next) {
        unread = local.f(v)
        next = Add(t, v)
      }> (s0, w)
      q = Add(s, m)
      n = Mul(q, z)
    }> (r, w)
    u = Add(r, p)
    a = Tanh(x)
    y = Mul(u, a)
  }> (s0, xs)
}
<domain: "local", opset_import: ["" : 18]>
f (a) => (b) { b = Neg(a) }"""

# Nothing but the numbers tell what sizes the Loop's result has, which is made in every step and read behind the loop.
UNDECLARED = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,6] xs, float[6] s0, int64 trips) => (float[6] d, float[4,k] e)
{
  d, e = Scan <num_scan_inputs = 1, body = outer (float[6] s, float[6] x) => (float[6] u, float[k] y) {
    keep = Constant <value = bool {1}> ()
    m = Loop (trips, keep, s) <body = inner (int64 i, bool c, float[] t) => (bool k, float[q] next) {
      k = Identity(c)
      next = Neg(t)
    }>
    u = Add(s, x)
    y = Identity(m)
  }> (s0, xs)
}"""

# Of what stands in a sequence nothing is known, but a Gemm is a matrix all the same.
SEQUENCE = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,2,2] xs, float[2,2] s0, float[2,3] k, float[2,3] w) => (float[2,2] d, float[4,2,3] e)
{
  ws = SequenceConstruct(w)
  first = Constant <value = int64 {0}> ()
  c = SequenceAt(ws, first)
  d, e = Scan <num_scan_inputs = 1, body = step (float[2,2] s, float[2,2] x) => (float[2,2] u, float[] y) {
    u = Add(s, x)
    y = Gemm(u, k, c)
  }> (s0, xs)
}"""

# Nor is anything known of what a function gives, but a transposed one is a matrix.
FUNCTION = """
<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
loops (float[4,2,2] xs, float[2,2] w) => (float[4,2,2] e)
{
  e = Scan <num_scan_inputs = 1, body = step (float[2,2] x) => (float[2,2] y) {
    a = local.f(w)
    b = Transpose <perm = [1, 0]> (a)
    y = Add(x, b)
  }> (xs)
}
<domain: "local", opset_import: ["" : 18]>
f (a) => (b) { b = Neg(a) }"""

# Half of what the body reads serves nothing, and what leaves it cannot be written for all steps at once.
IDLE = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,6] xs, float[4,6] zs, float[6] s0) => (float[6] d, int64[4,1,k] e)
{
  d, e = Scan <num_scan_inputs = 2, body = step (float[6] s, float[6] x, float[6] z) => (float[6] u, int64[1,k] y) {
    unread = Neg(z)
    u = Add(s, x)
    a = Abs(x)
    y = NonZero(a)
  }> (s0, xs, zs)
}"""

FORMS = {
    "idle": IDLE,
    "function": FUNCTION,
    "sequence": SEQUENCE,
    "nested": NESTED,
    "invariant": INVARIANT,
    "unread": UNREAD,
    "both_ways": BOTH_WAYS,
    "undeclared": UNDECLARED,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", loop_passes(), ids=lambda step: step.name)
def test_alone(step: type[LoopPass], form: str) -> None:
    """Whoever calls one pass has not called those that infer shapes and clean up."""
    model = onnx.parser.parse_model(FORMS[form])
    random = np.random.default_rng(0)
    feeds = {
        value.name: random.normal(0, 0.1, [size.dim_value for size in value.type.tensor_type.shape.dim]).astype("f")
        for value in model.graph.input
    }
    if "trips" in feeds:
        feeds["trips"] = np.array(3)
    work, called = ir.from_proto(model), alone(step)
    called.verify_each = True
    called(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    assert_same(run(model, feeds, optimised=False), run(after, feeds, optimised=False))


def check(case: LoopModel, step: LoopPass, *, applies: bool | None = None) -> None:
    """Results before and after one pass are the same."""
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    modified = step(work).modified
    assert applies is None or modified == applies
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    assert_same(run(case.model, case.feeds, optimised=False), run(after, case.feeds, optimised=False))


def parsed(text: str, **shapes: tuple[int, ...]) -> LoopModel:
    """A model in onnx's text form, with random values for its inputs."""
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return LoopModel(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'), feeds)


PRODUCT = """
loops (float[2,{batch},{units}] xs, float[{batch},{units}] first, float[{units},{units}] w)
  => (float[{batch},{units}] last, float[2,{batch},{units}] ys)
{{
  {weight}
  last, ys = Scan <num_scan_inputs = 1, scan_input_directions = [{reverse}],
    body = step (float[{batch},{units}] s, float[{batch},{units}] x)
      => (float[{batch},{units}] u, float[{batch},{units}] y)
    {{ t = Tanh(s) p = MatMul(t, v) {update} y = Neg({output}) }}> (first, xs)
}}"""


@quick
@given(data=st.data())
def test_oriented_products_keep_results(data: st.DataObject) -> None:
    """Where the exchange pays and where it does not, a state that is the product itself and one that is not."""
    batch, units = data.draw(st.sampled_from([(1, 512), (16, 256), (2, 8)]))
    text = PRODUCT.format(
        batch=batch,
        units=units,
        weight=data.draw(st.sampled_from(["v = Transpose <perm = [1, 0]> (w)", "v = Neg(w)"])),
        reverse=data.draw(st.integers(0, 1)),
        update=data.draw(st.sampled_from(["u = Add(p, x)", "u = Identity(p)", "u = Mul(p, s)"])),
        output=data.draw(st.sampled_from(["u", "p", "s"])),
    )
    case = parsed(text, xs=(2, batch, units), first=(batch, units), w=(units, units))
    case.feeds["w"] /= units**0.5
    check(case, KernelSelection(), applies=units > 8)


# What is added to parts of a cut sum in a body -> whether the numbers leave it.
OF_PARTS = {
    "q = Add(p, k) f, g, h = {cut} (q, sizes) a = Add(f, two) b = Add(three, h)": True,
    "r = Add(p, x) q = Add(k, r) f, g, h = {cut} (q, sizes) a = Sub(f, g) b = Add(h, two)": True,
    # The sum or the part is read elsewhere, too; no term is the same at every step; the number makes the part wider.
    "q = Add(p, k) i, j, l = {cut} (q, sizes) f, g, h = {cut} (q, sizes) a = Add(f, two) b = Sub(h, j)": False,
    "q = Add(p, k) f, g, h = {cut} (q, sizes) a = Add(f, two) b = Add(f, h)": False,
    "q = Add(p, x) f, g, h = {cut} (q, sizes) a = Add(f, two) b = Add(h, three)": False,
    "q = Add(p, k) f, g, h = {cut} (q, sizes) a = Add(f, wide) b = Add(h, g)": False,
}


@pytest.mark.parametrize(("form", "leave"), OF_PARTS.items())
def test_numbers_added_to_parts(form: str, leave: bool) -> None:
    step = f"p = MatMul(s, w) {form.format(cut='Split <axis = 1>')}"
    rest = "c = Mul(a, b) d = Add(c, g) e = Sum(c, d) u = Concat <axis = 1> (c, d, e) y = Tanh(u)"
    case = parsed(
        f"""loops (float[4,2,3] xs, float[2,3] first, float[3,3] w, float[3] k) => (float[2,3] last, float[4,2,3] ys)
        <int64[3] sizes = {{1, 1, 1}}, float two = {{2.0}}, float[1,1] three = {{3.0}}, float[2,1] wide = {{4.0, 5.0}}>
        {{ last, ys = Scan <num_scan_inputs = 1,
             body = step (float[2,3] s, float[2,3] x) => (float[2,3] u, float[2,3] y)
             {{ {step} {rest} }}> (first, xs) }}""",
        xs=(4, 2, 3), first=(2, 3), w=(3, 3), k=(3,),
    )  # fmt: skip
    check(case, Reassociation(), applies=leave)


def shown(golden: Golden, case: LoopModel, step: LoopPass) -> None:
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    before = dump(work)
    step(work)
    golden(f"loop_{step.name}", before=before, after=dump(work))
