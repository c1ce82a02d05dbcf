"""Steps to divide among workers: their losses are means or sums over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir

import lstm_lower as ll
from lstm_lower.passes.training.losses import MSE
from lstm_lower.records import state

Array = np.ndarray[Any, Any]

_LSTM = """
<ir_version: 8, opset_import: ["" : 18]>
lstm (float[5,B,3] x, float[1,8,3] w, float[1,8,2] r) => (float[1,B,2] y)
{ h, y, c = LSTM <hidden_size = 2> (x, w, r) }
"""

_LAYERS = """
<ir_version: 8, opset_import: ["" : 18]>
layers (float[B,3] x) => (float[B,2] y)
    <float[3,4] v = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, float[4] scale = {1, 1, 1, 1}, float[4] bias = {0, 0, 0, 0},
     float[4] mean = {0, 0, 0, 0}, float[4] var = {1, 1, 1, 1}, float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8},
     float ratio = {0.5}, bool training = {1}>
{
    a = MatMul(x, v)
    b, new_mean, new_var = BatchNormalization <training_mode = 1> (a, scale, bias, mean, var)
    NEXT
    y = MatMul(c, w)
}
"""


def lstm(reduction: Any = "mean") -> ir.Model:
    """An LSTM in time-major layout; its weights start at random numbers."""
    model = ir.from_proto(onnx.parser.parse_model(_LSTM))
    for name, shape in (("w", (1, 8, 3)), ("r", (1, 8, 2))):
        state.set_initial_value(model, name, np.random.default_rng(2).standard_normal(shape).astype(np.float32))
    return ll.from_onnx(model, MSE(reduction=reduction))


def layers(*, dropout: bool) -> ir.Model:
    """A normalization by the batch's statistics, with or without dropout behind it."""
    behind = "c, kept = Dropout(b, ratio, training)" if dropout else "c = Relu(b)"
    return ll.from_onnx(ir.from_proto(onnx.parser.parse_model(_LAYERS.replace("NEXT", behind))), "mse", "sgd")


def lstm_batches(count: int, rows: int = 11) -> list[dict[str, Array]]:
    """Random data of the LSTM."""
    random = np.random.default_rng(4)
    return [
        {
            "x": random.standard_normal((5, rows, 3)).astype(np.float32),
            "target": random.standard_normal((1, rows, 2)).astype(np.float32),
        }
        for _ in range(count)
    ]
