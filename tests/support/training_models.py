"""Small training steps, written out, for the tests of the trainer."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from lstm_lower.records import model_files as model_io
from lstm_lower.records import state

GRAPHS = Path(__file__).parents[2] / "examples" / "graphs"
Array = np.ndarray[Any, Any]

# loss = 1/2 |w - x|^2 + |b| sum(y); the gradients are w - x and sum(y) sign(b).
_GRADIENTS = """
<ir_version: 8, opset_import: ["" : 18]>
quadratic (float[N, 3] x, float[3] w, float[2] b)
    => (float loss, float[3] grad_w, float[2] grad_b, float[N] distance)
{
    residue = Sub (w, x)
    squares = Mul (residue, residue)
    axis = Constant <value_ints = [0]> ()
    last = Constant <value_ints = [1]> ()
    half = Constant <value = float {0.5}> ()
    distance = ReduceSum <keepdims = 0> (squares, last)
    total = ReduceSum <keepdims = 0> (distance, axis)
    kept = Mul (total, half)
    size = Abs (b)
    sizes = ReduceSum <keepdims = 0> (size, axis)
    loss = Add (kept, sizes)
    grad_w = ReduceSum <keepdims = 0> (residue, axis)
    grad_b = Sign (b)
}
"""


def quadratic() -> ir.Model:
    """A model that ends at its gradients; `w` starts at (1, 2, 3), `b` at (0.5, -0.25)."""
    model = ir.from_proto(onnx.parser.parse_model(_GRADIENTS))
    state.write(
        model,
        state.infer(model),
        {"w": np.array([1, 2, 3], np.float32), "b": np.array([0.5, -0.25], np.float32)},
    )
    return model


@functools.cache
def recorded_char_lstm() -> dict[str, Array]:
    """Feeds (`in:`) and TensorFlow's results (`out:`) of the character model."""
    with np.load(GRAPHS / "char_lstm_train.npz") as file:
        return dict(file)


def char_lstm() -> tuple[ir.Model, dict[str, Array]]:
    """The character model with its initial values recorded, and data for one step."""
    model = model_io.load(GRAPHS / "char_lstm_train.onnx")
    recorded = recorded_char_lstm()
    found = state.infer(model)
    values = {pair.input: recorded[f"in:{pair.input}"] for pair in found.pairs}
    values["learning_rate:0"] = recorded["in:learning_rate:0"]
    state.write(model, found, values)
    return model, {name: recorded[f"in:{name}"] for name in ("ids:0", "labels:0")}
