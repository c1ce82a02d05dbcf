"""The first node whose result is not finite, in graphs, loops and branches, and in gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import lstm_lower as ll
from lstm_lower.errors import NotFiniteError
from lstm_lower.runtime.training.diagnosis import NonFinite

X = np.array([[0.5, -1.0]], np.float32)


def trainer(body: str, w: Any = (1.0, 2.0), results: str = "float[] loss", **options: Any) -> ll.Trainer:
    """A step of one weight and one input."""
    text = f'<ir_version: 8, opset_import: ["" : 18]> g (float[B,2] x) => ({results}) {{ {body} }}'
    model = parser.parse_model(text)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(w, np.float32), "w"))
    return ll.Trainer(ll.from_onnx(model, "loss", "sgd"), **options)


SUM = "loss = ReduceSum<keepdims=0>(y)"
CASES: dict[str, tuple[str, tuple[float, float], NonFinite]] = {
    "overflow": (f"a = Mul(x, w) e = Exp(a) y = Sub(e, e) {SUM}", (1e3, 1), NonFinite("infinity", "e", "Exp", "Exp_1")),
    "root": (f"a = Mul(x, w) r = Sqrt(a) y = Neg(r) {SUM}", (1, 1), NonFinite("nan", "r", "Sqrt", "Sqrt_1")),
    # What is masked is infinite on purpose.
    "mask": (
        "m = Constant<value = float[1,2] {-inf, -inf}>() a = Mul(x, w) s = Add(a, m) y = Softmax(s) " + SUM,
        (1, 1),
        NonFinite("nan", "y", "Softmax", "Softmax_3"),
    ),
    # A result that nobody needs is not the reason.
    "aside": (
        f"a = Mul(x, w) z = Sub(x, x) l = Log(z) c = Equal(z, z) k = Where(c, a, l) y = Sqrt(k) {SUM}",
        (1, 1),
        NonFinite("nan", "y", "Sqrt", "Sqrt_5"),
    ),
    # The state doubles its digits: 10, 100, 1e4, ... 1e32, and is infinite in the sixth step.
    "scan": (
        """
        s0 = Constant<value = float[2] {10.0, 10.0}>()
        n = Constant<value = float[8] {1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0}>()
        s, t = Scan<num_scan_inputs = 1, body = b (float[2] a, float i) => (float[2] c, float[2] d) {
            q = Mul(a, a) c = Mul(q, w) d = Identity(c) }>(s0, n)
        y = Mul(s, x) """
        + SUM,
        (1, 1),
        NonFinite("infinity", "q", "Mul", "", (5,)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_node_is_named(name: str) -> None:
    body, w, expected = CASES[name]
    stopped = trainer(body, w)
    with pytest.raises(NotFiniteError, match="step 1: the loss must be finite"):
        stopped.step({"x": X})
    found = stopped.first_nonfinite({"x": X})
    assert found is not None
    assert (found.kind, found.value, found.op_type, found.steps) == (
        expected.kind, expected.value, expected.op_type, expected.steps,
    )  # fmt: skip
    assert found.node == expected.node or name == "scan"
    stopped.trace_nan = True
    with pytest.raises(NotFiniteError, match=rf"makes the first {expected.kind}, in '{expected.value}'"):
        stopped.step({"x": X})


def test_what_is_finite_has_none() -> None:
    assert trainer(f"y = Mul(x, w) {SUM}").first_nonfinite({"x": X}) is None


def test_a_gradient_may_be_infinite_where_the_loss_is_not() -> None:
    body = f"z = Sub(w, w) r = Sqrt(z) y = Mul(x, r) {SUM}"
    going = trainer(body, on_nan="ignore")
    found = going.first_nonfinite({"x": X})
    assert found is not None
    assert found.op_type == "Div"


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "nan"), (np.inf, "infinity")])
def test_what_comes_in_is_named(value: float, kind: str) -> None:
    going = trainer(f"y = Mul(x, w) {SUM}")
    found = going.first_nonfinite({"x": np.full((1, 2), value, np.float32)})
    assert found == NonFinite(kind, "x")  # type: ignore[arg-type]
    assert str(found) == f"'x' holds {kind} before the step"
    going.load_state_dict({**going.state_dict(), "w": np.array([1, value], np.float32)})
    assert going.first_nonfinite({"x": X}) == NonFinite(kind, "w")  # type: ignore[arg-type]


def test_steps_of_recurrent_layers_are_counted() -> None:
    """A cell state that grows by 1e38 a step overflows in the fourth."""
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[T,1,1] x) => (float[] loss) {
        Y, h, c = LSTM<hidden_size = 1, activations = ["Sigmoid", "Affine", "Affine"], activation_alpha = [1.0, 1.0],
            activation_beta = [0.0, 0.0]>(x, W, R, B)
        loss = ReduceSum<keepdims=0>(c) }"""
    model = parser.parse_model(text)
    gates = np.array([100, 100, 100, 0], np.float32)
    weights = {
        "W": np.array([0, 0, 0, 1], np.float32).reshape(1, 4, 1),
        "R": np.zeros((1, 4, 1), np.float32),
        "B": np.concatenate([gates, np.zeros(4, np.float32)]).reshape(1, 8),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    going = ll.Trainer(ll.from_onnx(model, "loss", "sgd"))
    found = going.first_nonfinite({"x": np.full((8, 1, 1), 1e38, np.float32)})
    assert found is not None
    assert (found.kind, found.op_type, found.steps) == ("infinity", "Add", (3,))
