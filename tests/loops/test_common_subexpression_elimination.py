"""Merging of equal nodes and of Scans that carry the same recurrence."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given

import lstm_lower as ll
from lstm_lower.graph import standard as std
from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.common_subexpression_elimination import CommonSubexpressionElimination
from lstm_lower.passes.loops.views.loop import scans_of
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run, run_reference
from tests.support.loop_twins import Twins, twins

quick = tried(25)


def merged(model: onnx.ModelProto) -> ir.Model:
    work = ir.from_proto(model)
    InferShapesPass()(work)
    CommonSubexpressionElimination()(work)
    verify(work)
    onnx.checker.check_model(ir.to_proto(work), full_check=True)
    return work


@pytest.mark.slow
@quick
@given(pair=twins())
def test_loops_of_one_recurrence_become_one(pair: Twins) -> None:
    work = merged(pair.case.model)
    if pair.recur:
        assert len(scans_of(work.graph)) == (2 if pair.apart else 1)
    before = run(pair.case.model, pair.case.feeds, optimised=False)
    assert_same(before, run(ir.to_proto(work), pair.case.feeds, optimised=False))


@pytest.mark.slow
@tried(8)
@given(pair=twins())
def test_the_pipeline_keeps_results(pair: Twins) -> None:
    after = ll.optimize(pair.case.model, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    before = run(pair.case.model, pair.case.feeds, optimised=False)
    assert_same(before, run(after, pair.case.feeds))
    assert_same(before, run_reference(after, pair.case.feeds))


# Loop A computes h and c. Loop B has the same recurrence, its states in the other order, saves other values, counts its
# steps, and reads what is made between the loops.
RECOMPUTED = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[2,1,3] sequence, float[1,3] h0, float[1,3] c0, float[3,3] w, float[1] zero) =>
      (float[1,3] last, float[2,1,3] hs, float[2,1,3] cs, float[2,1,3] gates, float[1] count)
{
  last, c_last, hs = Scan <num_scan_inputs = 1,
    body = forward (float[1,3] h, float[1,3] c, float[1,3] x) => (float[1,3] hn, float[1,3] cn, float[1,3] y)
    { p = MatMul(h, w) s = Add(p, x) g = Tanh(s) cn = Mul(g, c) hn = Sigmoid(cn) y = Identity(hn) }>
    (h0, c0, sequence)
  k = Neg(w)
  c_again, h_again, count, hs_again, cs, gates = Scan <num_scan_inputs = 1,
    body = again (float[1,3] c, float[1,3] h, float[1] n, float[1,3] x)
      => (float[1,3] cn, float[1,3] hn, float[1] m, float[1,3] y, float[1,3] d, float[1,3] e)
    { p = MatMul(h, w) s = Add(x, p) g = Tanh(s) cn = Mul(g, c) hn = Sigmoid(cn) y = Identity(hn) d = Identity(cn)
      e = MatMul(g, k) one = Constant <value = float[1] {1.0}> () m = Add(n, one) }>
    (c0, h0, zero, sequence)
}"""


def test_one_loop_saves_what_two_did(golden: Golden) -> None:
    model = onnx.parser.parse_model(RECOMPUTED)
    before = ir.from_proto(model)
    InferShapesPass()(before)
    after = merged(model)
    golden("loop_loop-fusion", before=dump(before), after=dump(after))
    (loop,) = scans_of(after.graph)
    assert len(loop.outputs) == 6


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("(c0, h0, zero, sequence)", "(h0, c0, zero, sequence)"), "other initial values"),
        (("s = Add(x, p)", "s = Sub(x, p)"), "other updates"),
        (("k = Neg(w)", "k = Mul(w, last)"), "the second reads a result of the first"),
        (("zero, sequence)", "zero, other)"), "another sequence"),
        (("again, cs, gates = Scan <", "again, cs, gates = Scan <scan_input_directions = [1], "), "another direction"),
        (("e = MatMul(g, k)", "r = RandomUniformLike(g) e = Mul(g, r)"), "random results"),
    ],
    ids=lambda x: None if isinstance(x, tuple) else x,
)
def test_loops_stay_apart(change: tuple[str, str], reason: str) -> None:
    text = RECOMPUTED.replace("float[1] zero)", "float[1] zero, float[2,1,3] other)")
    assert change[0] in text, reason
    assert len(scans_of(merged(onnx.parser.parse_model(text.replace(*change))).graph)) == 2


def test_recurrences_over_results_of_merged_ones_merge_too() -> None:
    """What the first pair makes are other values once it is merged: the second pair is looked at again."""
    step = "{ u = Add(s, x) y = Tanh(u) }"
    other = "{ u = Add(s, x) y = Sigmoid(u) }"
    role = "(float[3] s, float[3] x) => (float[3] u, float[3] y)"
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    loops (float[4,3] xs, float[3] s0) => (float[3] d, float[4,3] e, float[4,3] f)
    {{
      a, p = Scan <num_scan_inputs = 1, body = step {role} {step}> (s0, xs)
      b, q = Scan <num_scan_inputs = 1, body = step {role} {other}> (s0, xs)
      c, e = Scan <num_scan_inputs = 1, body = step {role} {step}> (b, q)
      d, f = Scan <num_scan_inputs = 1, body = step {role} {other}> (b, q)
    }}"""
    model = onnx.parser.parse_model(text)
    work = merged(model)
    assert len(scans_of(work.graph)) == 2
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in (("xs", (4, 3)), ("s0", 3))}
    assert_same(run(model, feeds), run(ir.to_proto(work), feeds))


def test_scopes_that_share_names_do_not_get_in_each_others_way() -> None:
    """ONNX allows it to subgraphs side by side; what leaves them meets in one graph."""
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    loops (float[2,2,3] xs, float[2,2,3] zs, float[2,3] h0, float[3,3] w) => (float[2,3] a, float[2,3] b)
    {
      a = Scan <num_scan_inputs = 1, body = step (float[2,3] s, float[2,3] x) => (float[2,3] u)
        { [n] t = Relu(w) p = MatMul(x, t) v = Add(s, p) u = Tanh(v) }> (h0, xs)
      b = Scan <num_scan_inputs = 1, body = step (float[2,3] s, float[2,3] x) => (float[2,3] u)
        { [n] t = Sigmoid(w) p = MatMul(x, t) v = Sub(s, p) u = Tanh(v) }> (h0, zs)
    }"""
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    shapes = {"xs": (2, 2, 3), "zs": (2, 2, 3), "h0": (2, 3), "w": (3, 3)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    after = ll.optimize(model)
    onnx.checker.check_model(after, full_check=True)
    assert_same(run(model, feeds), run(after, feeds))


@pytest.mark.parametrize("outputs", ["b, mean, deviation", "b, mean", "b, , deviation"])
def test_an_output_that_is_left_out_stands_for_no_other(outputs: str) -> None:
    read = outputs.rpartition(", ")[2]
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[2,3] x, float[3] scale) => (float[2,3] a, float[2,3] c, float[?,?] d)
    {{
      a, , other = LayerNormalization(x, scale)
      {outputs} = LayerNormalization(x, scale)
      c = Neg(b)
      d = Neg({read})
    }}"""
    model = onnx.parser.parse_model(text)
    work = merged(model)
    assert sum(node.op_type == "LayerNormalization" for node in work.graph) == (1 if outputs == "b, , deviation" else 2)
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3) ** 2, "scale": np.ones(3, np.float32)}
    assert_same(run(model, feeds), run(ir.to_proto(work), feeds))


def test_a_recurrence_that_stops_gradients_stays_apart() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    loops (float[T,3] xs, float[3] h0) => (float[3] a, float[3] b)
    {
      a = Scan <num_scan_inputs = 1, body = step (float[3] s, float[3] x) => (float[3] u)
        { t = Mul(s, x) v = Identity(t) u = Tanh(v) }> (h0, xs)
      b = Scan <num_scan_inputs = 1, body = step (float[3] r, float[3] z) => (float[3] q)
        { o = Mul(r, z) p = Identity(o) q = Tanh(p) }> (h0, xs)
    }"""
    model = onnx.parser.parse_model(text)
    assert len(scans_of(merged(model).graph)) == 1
    (body,) = [attribute.g for attribute in model.graph.node[1].attribute if attribute.name == "body"]
    body.node[1].metadata_props.add(key=std.STOPPED, value="true")
    assert len(scans_of(merged(model).graph)) == 2
