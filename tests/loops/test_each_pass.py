"""Every loop pass has a golden; here property tests of those whose loops have to be of a kind of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.bias_fusion import BiasFusion
from lstm_lower.passes.loops.operand_swapping import OperandSwapping
from lstm_lower.passes.loops.projection_bias import ProjectionBias
from lstm_lower.passes.loops.views.base import LoopPass
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


# What sinking leaves behind a loop: products over all steps, and a sum over the rows that they read.
WEIGHT_GRADIENTS = """
loops ({steps} xs, {steps} hs, float[B,3] first) => (float[B,3] last, float[K,3] w, float[L,3] w2, {total} b, {steps} r)
{{
  pair = Concat <axis = {axis}> (xs, hs)
  other = Concat <axis = 2> (hs, xs, hs)
  last, g = Scan <num_scan_inputs = 1, body = step (float[B,3] s, float[B,3] x) => (float[B,3] u, float[B,3] y)
    {{ u = Add(s, x) y = Tanh(u) }}> (first, xs)
  rows = Flatten <axis = 2> (g)
  left = Flatten <axis = 2> (pair)
  w = Gemm <transA = 1> (left, rows)
  left2 = Flatten <axis = 2> (other)
  w2 = Gemm <transA = 1> (left2, rows)
  axes = Constant <value = int64[2] {{{axes}}}> ()
  b = ReduceSum <keepdims = {keep}> (g, axes)
  r = Neg({reread})
}}"""


def weight_gradients(draw: Any) -> LoopModel:
    keep, steps, batch = draw(st.integers(0, 1)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    text = WEIGHT_GRADIENTS.format(
        axis=draw(st.sampled_from([2, -1])),
        axes=draw(st.sampled_from(["0, 1", "1, 0", "-3, 1"])),
        keep=keep,
        steps=draw(st.sampled_from(["float[T,B,3]", f"float[{steps},{batch},3]"])),
        total="float[1,1,3]" if keep else "float[3]",
        reread=draw(st.sampled_from(["g", "hs"])),
    )
    text = text.replace("float[B,", f"float[{batch},") if draw(st.booleans()) else text
    return parsed(text, xs=(steps, batch, 3), hs=(steps, batch, 3), first=(batch, 3))


@quick
@given(data=st.data())
def test_bias_fusion_keeps_results(data: st.DataObject) -> None:
    check(weight_gradients(data.draw), BiasFusion(), applies=True)


# What a loop's bodies leave before it: products over all steps, and the vectors that are added to them.
PROJECTIONS = """
loops ({kind}[T,{x}] xs, {kind}[{weight}] w, {kind}[{vector}] b, {kind}[{first}] first) => ({kind}[{first}] last)
{{
  p = MatMul({product})
  q = Add({sum})
  last = Scan <num_scan_inputs = 1, body = step ({kind}[{first}] s, {kind}[{first}] x) => ({kind}[{first}] u)
    {{ t = Mul(s, x) u = Add(t, x) }}> (first, {read})
}}"""


@quick
@given(data=st.data())
def test_projection_bias_keeps_results(data: st.DataObject) -> None:
    """Sums that cost more than one more row, upright and transposed; others, and what others read, are left alone."""
    turned, units = data.draw(st.booleans()), data.draw(st.sampled_from([4, 200]))
    shapes = {
        "xs": (3, 30) if turned else (30, 3),
        "w": (units, 3) if turned else (3, units),
        "first": (units, 30) if turned else (30, units),
        "b": data.draw(
            st.sampled_from([(units, 1), (1, units, 1)] if turned else [(units,), (1, units), (1, 1, units)])
        ),
    }
    other = data.draw(
        st.sampled_from([None, (30,) if turned else (30, 1), (1,), (units, 30) if turned else (30, units)])
    )
    sides = [data.draw(st.sampled_from(["p, b", "b, p"])), "w, xs" if turned else "xs, w"]
    read = data.draw(st.sampled_from(["q", "p"])) if other is None else "q"
    shapes["b"] = other or shapes["b"]
    kind = data.draw(st.sampled_from(["float", "double"]))
    x, weight, vector, first = (", ".join(map(str, shapes[name])) for name in ("xs", "w", "b", "first"))
    text = PROJECTIONS.format(
        kind=kind, x=x, weight=weight, vector=vector, first=first, sum=sides[0], product=sides[1], read=read
    )
    case = parsed(text, **(shapes | {"xs": (20, *shapes["xs"])}))
    case.feeds = {name: value.astype("f" if kind == "float" else "d") for name, value in case.feeds.items()}
    check(case, ProjectionBias(), applies=units == 200 and other is None and read == "q")


def test_projection_bias(golden: Golden) -> None:
    case = parsed(
        PROJECTIONS.format(
            kind="float", x="B,3", weight="3,200", vector="200", first="B,200", sum="p, b", product="xs, w", read="q"
        )
    )
    shown(golden, case, ProjectionBias())


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
def test_operand_swapping_keeps_results(data: st.DataObject) -> None:
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
    check(case, OperandSwapping(), applies=units > 8)


def test_bias_fusion(golden: Golden) -> None:
    text = WEIGHT_GRADIENTS.format(axis=2, axes="0, 1", keep=0, steps="float[T,B,3]", total="float[3]", reread="hs")
    kept = "\n".join(line for line in text.splitlines() if not any(name in line for name in ("other", "left2")))
    case = parsed(kept.replace("float[L,3] w2, ", ""))
    shown(golden, case, BiasFusion())


def shown(golden: Golden, case: LoopModel, step: LoopPass) -> None:
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    before = dump(work)
    step(work)
    golden(f"loop_{step.name}", before=before, after=dump(work))
