"""Bodies whose matrices are kept transposed, so that no product packs its weight in each step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.passes.loops import transposed_bodies
from lstm_lower.passes.loops.transposed_bodies import TransposedBodies
from tests.loops.test_each_pass import check, parsed, quick
from tests.support.loop_checks import assert_same, run
from tests.support.loop_models import LoopModel, loop_models


@contextlib.contextmanager
def gaining(each: float = 1e9) -> Iterator[None]:
    """Every product of a carried matrix gains as much, by default more than any transposition costs."""
    with pytest.MonkeyPatch.context() as patch:
        found = transposed_bodies.repacking
        patch.setattr(transposed_bodies, "_gain", lambda *where: 0.0 if found(*where) is None else each)
        yield


@quick
@given(case=loop_models())
def test_random_loops_keep_their_results(case: LoopModel) -> None:
    with gaining():
        check(case, TransposedBodies())


# A step of what networks do: gates of one product, divided and joined, a mask of a vector, sequences on both sides.
NETWORK = """
loops (float[T,B,4] xs, float[B,3] first, float[B,3] second, float[4,6] w, float[3,6] r, float[6] bias, float[3] scale)
  => (float[B,3] h, float[B,3] c, float[T,B,3] hs, float[T,B,2] narrow, float[6] sums)
{{
  projected = MatMul(xs, w)
  gates = Add(projected, bias)
  {sequence}
  h, c, hs, all = Scan <num_scan_inputs = 1, scan_input_directions = [{reverse}],
    scan_output_directions = [{reverse}, 0],
    body = step (float[B,3] s, float[B,3] t, float[B,6] x) => (float[B,3] s2, float[B,3] t2, float[B,3] y, float[B,6] z)
    {{ p = MatMul(s, r) q = Add(p, x) a, b = Split <axis = -1, num_outputs = 2> (q) f = Sigmoid(a) g = Tanh(b)
      fc = Mul(f, t) gs = Mul(g, scale) t2 = Add(fc, gs) s2 = {update} y = Identity(s2) z = Concat <axis = 1> (f, g) }}>
    (first, second, sequence)
  sums = ReduceSum <keepdims = 0> (all, axes)
  narrow = MatMul(hs, some)
}}"""
SEQUENCES = {
    "made": "sequence = Identity(gates)",
    "cut": (
        "rest = Slice(gates, one, end, zero) head = Slice(gates, zero, one, zero) "
        "sequence = Concat <axis = 0> (rest, head)"
    ),
    "joined": "left, right = Split <axis = 2, num_outputs = 2> (gates) sequence = Concat <axis = 2> (right, left)",
}
CONSTANTS = (
    "axes = Constant <value_ints = [0, 1]> () zero = Constant <value_ints = [0]> () "
    "one = Constant <value_ints = [1]> () "
    "end = Constant <value_ints = [1000]> () some = Constant <value = float[3,2] {1, 2, 3, 4, 5, 6}> ()"
)


@pytest.mark.slow
@quick
@given(data=st.data())
def test_networks_keep_their_results(data: st.DataObject) -> None:
    draw = data.draw
    text = NETWORK.format(
        sequence=CONSTANTS + draw(st.sampled_from(list(SEQUENCES.values()))),
        reverse=draw(st.integers(0, 1)),
        update=draw(st.sampled_from(["Tanh(t2)", "Mul(g, t2)", "Sub(s, t2)"])),
    )
    steps, batch = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    case = parsed(
        text, xs=(steps, batch, 4), first=(batch, 3), second=(batch, 3), w=(4, 6), r=(3, 6), bias=(6,), scale=(3,)
    )
    with gaining():
        check(case, TransposedBodies(), applies=True)
        after = ll.optimize(case.model, draw(st.sampled_from(["auto", "scan", "unroll", "chunk:2"])))
    for optimised in (False, True):
        assert_same(run(case.model, case.feeds, optimised=optimised), run(after, case.feeds, optimised=optimised))


# The second loop walks along what the first one made, and adds its result in each step; squares hide a wrong order.
STACK = """
loops (float[T,3,3] xs, float[3,3] first, float[3,3] w, float[3,3] r) => (float[3,3] u, float[S,3,3] ys)
{{
  {constants}
  h, hs = Scan <num_scan_inputs = 1, body = lower (float[3,3] s, float[3,3] x) => (float[3,3] s2, float[3,3] y)
    {{ p = MatMul(s, w) q = Add(p, x) s2 = Tanh(q) y = Identity(s2) }}> (first, xs)
  walked = Slice(hs, one, end, zero)
  u, ys = Scan <num_scan_inputs = 1, body = upper (float[3,3] t, float[3,3] z) => (float[3,3] t2, float[3,3] v)
    {{ m = MatMul(t, r) n = Add(m, z) o = Mul(n, {captured}) t2 = Tanh(o) v = Identity(t2) }}> (first, walked)
}}"""


@pytest.mark.parametrize("captured", ["h", "first"])
def test_a_loop_reads_what_another_one_made(captured: str) -> None:
    case = parsed(STACK.format(constants=CONSTANTS, captured=captured), xs=(4, 3, 3), first=(3, 3), w=(3, 3), r=(3, 3))
    with gaining():
        check(case, TransposedBodies(), applies=True)


def test_a_product_reads_the_transpose_of_another_one() -> None:
    case = parsed(
        """
loops (float[2,3] a, float[3,2] b, float[T] xs, float[3,3] w, float[2,2] r)
  => (float[2,3] u, float[3,2] v, float[T,2,3] ys)
{
  u, v, ys = Scan <num_scan_inputs = 1, body = step (float[2,3] s, float[3,2] t, float x)
    => (float[2,3] s2, float[3,2] t2, float[2,3] y)
    { p = MatMul(s, w) q = Add(p, x) t2 = Transpose <perm = [1, 0]> (q) m = MatMul(t2, r)
      n = Transpose <perm = [1, 0]> (m) y = Sin(n) s2 = Tanh(s) }> (a, b, xs)
}""",
        a=(2, 3),
        b=(3, 2),
        xs=(4,),
        w=(3, 3),
        r=(2, 2),
    )
    with gaining():
        check(case, TransposedBodies(), applies=True)


def _bodies(model: onnx.ModelProto) -> list[list[str]]:
    scans = [node for node in model.graph.node if node.op_type == "Scan"]
    bodies = [attribute.g for node in scans for attribute in node.attribute if attribute.name == "body"]
    return [[node.op_type for node in body.node] for body in bodies]


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "gates"), [("LSTM", 4 * 128), ("GRU", 3 * 128)])
def test_a_training_step_transposes_nothing_in_its_loops(layer: str, gates: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    step (float[T,B,16] x, float[1,{gates},16] w, float[1,{gates},128] r, float[1,{2 * gates}] b) => (float loss)
    {{ y = {layer} <hidden_size = 128> (x, w, r, b) s = Mul(y, y) loss = ReduceMean <keepdims = 0> (s) }}"""

    def step() -> onnx.ModelProto:
        return ll.lower(ll.gradient(onnx.parser.parse_model(text), of="loss", wrt=["x", "w", "r", "b"]))

    with gaining(0.0):
        upright = step()
    turned = step()
    assert len(_bodies(turned)) == 2
    assert not any("Transpose" in body for body in _bodies(turned))
    assert any("Transpose" in body for body in _bodies(upright))
    random = np.random.default_rng(0)
    shapes = {"x": (5, 16, 16), "w": (1, gates, 16), "r": (1, gates, 128), "b": (1, 2 * gates)}
    feeds = {name: (random.standard_normal(shape) * 0.1).astype(np.float32) for name, shape in shapes.items()}
    assert_same(run(upright, feeds), run(turned, feeds))


def test_what_a_step_needs_upright_is_left_alone() -> None:
    case = parsed(
        """
loops (float[3,3] first, float[T,3,3] xs, float[3,3] w) => (float[3,3] last, float[T,3,3] ys)
{
  last, ys = Scan <num_scan_inputs = 1, body = step (float[3,3] s, float[3,3] x) => (float[3,3] s2, float[3,3] y)
    { p = MatMul(s, w) q = Softmax <axis = 1> (p) s2 = Add(q, x) y = Identity(q) }> (first, xs)
}""",
        first=(3, 3),
        xs=(4, 3, 3),
        w=(3, 3),
    )
    with gaining():
        check(case, TransposedBodies(), applies=False)


def test_a_loop_alone_whose_sequences_cost_more_is_left_alone() -> None:
    sequences = ", ".join(f"float[T,32,256] x{k}" for k in range(8))
    elements = ", ".join(f"float[32,256] e{k}" for k in range(8))
    products = " ".join(f"m{k + 1} = Mul(m{k}, e{k})" for k in range(8))
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    loops (float[32,256] first, {sequences}, float[256,256] w) => (float[32,256] last)
    {{ last = Scan <num_scan_inputs = 8, body = step (float[32,256] s, {elements}) => (float[32,256] s2)
      {{ m0 = Tanh(s) {products} s2 = MatMul(m8, w) }}> (first, {", ".join(f"x{k}" for k in range(8))}) }}"""
    optimized = ll.optimize(onnx.parser.parse_model(text))
    # Its one product keeps a transposed state instead.
    assert _bodies(optimized)[0].count("Transpose") == 1
    assert "Gemm" in _bodies(optimized)[0]
