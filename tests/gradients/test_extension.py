"""Operators without a rule of their own, and ops of other domains."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import lstm_lower as ll
from lstm_lower.extend import Builder, Cotangents, Expr, differentiates, standard
from lstm_lower.passes.gradients import registry
from tests.support.differences import check, run


def test_an_operator_without_a_rule_is_named_with_the_way_on(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.rule_of(standard.Add)  # fills the registry
    others = {view: rule for view, rule in differentiates._rules.items() if view is not standard.Unique}
    monkeypatch.setattr(differentiates, "_rules", others)
    monkeypatch.setattr(differentiates, "_found", {})
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (double[4] x) => (double[N] y) { y = Unique <sorted = 1> (x) }'
    )
    with pytest.raises(ll.UnsupportedOpError, match=r"(?s)Unique '.*lstm_lower\.extend\.differentiates"):
        ll.gradient(model, "y", ["x"], seeds=True)

    @differentiates(standard.Unique)
    def _unique(op: standard.Unique, b: Builder, dys: Cotangents) -> list[Expr | None]:
        """Right where all elements differ and stand in order."""
        return [dys[0]]

    check(model, {"x": np.asarray([1.0, 2.0, 3.0, 4.0])}, wrt=["x"])


def test_nodes_that_onnxruntime_writes_are_named_as_such() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]> '
        "g (float[4] x) => (float[4] y) { y = com.microsoft.Unwritten (x) }"
    )
    with pytest.raises(ll.UnsupportedOpError, match="writes such nodes: take the model from before that"):
        ll.gradient(model, "y", ["x"], seeds=True)


@pytest.mark.slow
def test_ops_of_ours_have_gradients_by_their_formulas() -> None:
    """That of BlockLSTM by its formula is BlockLSTMGrad."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "tf" : 1]>
        g (float[T,B,3] x, float[5,8] w, float[8] b, float[B,2] c0, float[B,2] h0, float[2] p) => (float[T,B,2] h) {
          shape = Shape(x)  zero = Constant <value_int = 0> ()  steps = Gather(shape, zero)
          i, c, f, o, ci, co, h = tf.BlockLSTM <use_peephole = 0> (steps, x, c0, h0, w, p, p, p, b)
        }""")
    random = np.random.default_rng(0)
    shapes = {"x": (4, 2, 3), "w": (5, 8), "b": (8,), "c0": (2, 2), "h0": (2, 2), "p": (2,)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    dh = random.standard_normal((4, 2, 2)).astype(np.float32)
    found = run(ll.gradient(model, "h", ["x", "c0", "h0", "w", "b"], seeds=True), {**feeds, "seed/h": dh})
    own = {"x": "x", "cs_prev": "c0", "h_prev": "h0", "w": "w", "wci": "p", "wcf": "p", "wco": "p", "b": "b"}
    given = {"seq_len_max": 4, **{name: feeds[feed] for name, feed in own.items()}}
    forward = ll.raw_ops.BlockLSTM(**given, use_peephole=False)
    saved = {name: getattr(forward, name) for name in ("i", "cs", "f", "o", "ci", "co", "h")}
    backward = ll.raw_ops.BlockLSTMGrad(**given, **saved, cs_grad=np.zeros_like(dh), h_grad=dh, use_peephole=False)
    for name in ("x", "cs_prev", "h_prev", "w", "b"):
        np.testing.assert_allclose(
            found[f"grad/{own[name]}"], getattr(backward, f"{name}_grad"), rtol=1e-5, atol=1e-6, err_msg=name
        )


def test_what_stops_gradients_does_so_after_the_optimiser_too() -> None:
    """Of x * stop(x) the gradient is stop(x), of which there is none."""
    text = """
        <ir_version: 9, opset_import: ["" : 18, "tf" : 1]> g (double[N] x) => (double[N] y) {
          s = tf.StopGradient (x)  y = Mul(x, s) }"""
    x, ones = np.asarray([1.0, 2.0]), np.ones(2)
    model = ll.optimize(ll.lower(onnx.parser.parse_model(text)))
    once = ll.gradient(model, "y", ["x"], seeds=True)
    np.testing.assert_array_equal(run(once, {"x": x, "seed/y": ones})["grad/x"], x)
    twice = ll.gradient(once, "grad/x", ["x"], seeds=True)
    found = run(twice, {"x": x, "seed/y": ones, "seed/grad/x": ones})
    np.testing.assert_array_equal(found["grad/grad/x/x"], [0.0, 0.0])


def test_each_of_several_that_are_alike_stops_gradients() -> None:
    text = """
        <ir_version: 9, opset_import: ["" : 18, "tf" : 1]> g (double[N] x, double[N] z) => (double[N] y) {
          s = tf.StopGradient (x)  t = tf.StopGradient (z)  p = Mul(x, s)  q = Mul(z, t)  y = Add(p, q) }"""
    feeds = {"x": np.asarray([1.0, 2.0]), "z": np.asarray([3.0, 4.0]), "seed/y": np.ones(2)}
    found = run(ll.gradient(onnx.parser.parse_model(text), "y", ["x", "z"], seeds=True), feeds)
    for name in ("x", "z"):
        np.testing.assert_array_equal(found[f"grad/{name}"], feeds[name])
