"""Which block op is the gradient of which, for `finite_differences`.

The cells' gradient ops stop at the pre-activations; the products with the weights are made here, as TensorFlow's
Python gradients of the cells made them (tensorflow/contrib/rnn of TensorFlow 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_lower.runtime.proof.oracles.finite_differences import Named, Pairing, pairs
from lstm_lower.runtime.proof.oracles.numerics import Array

LSTM_STATES = ("x", "cs_prev", "h_prev")
LSTM_WEIGHTS = ("w", "wci", "wcf", "wco", "b")
NO_CLIP = {"cell_clip": 0.0}  # its gradient is the identity in TensorFlow, so it has no derivative to compare with

T, B, I, H = 4, 2, 3, 4  # noqa: E741 - the names that shapes are written with


def _draw(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    return {name: 0.7 * rng.standard_normal(shape) for name, shape in shapes.items()}


def sample_lstm_cell(rng: np.random.Generator, attributes: Named) -> dict[str, Any]:
    """Operands of LSTMBlockCell."""
    state, weights = (B, H), {"w": (I + H, 4 * H), "wci": (H,), "wcf": (H,), "wco": (H,), "b": (4 * H,)}
    return _draw(rng, {"x": (B, I), "cs_prev": state, "h_prev": state, **weights})


def sample_lstm_sequence(rng: np.random.Generator, attributes: Named) -> dict[str, Any]:
    """Operands of BlockLSTM and BlockLSTMV2; the last step lies past `seq_len_max`."""
    operands = sample_lstm_cell(rng, attributes)
    return {**operands, "x": rng.standard_normal((T, B, I)), "seq_len_max": np.int64(T - 1)}


def sample_gru_cell(rng: np.random.Generator, attributes: Named) -> dict[str, Any]:
    """Operands of GRUBlockCell."""
    weights = {"w_ru": (I + H, 2 * H), "w_c": (I + H, H), "b_ru": (2 * H,), "b_c": (H,)}
    return _draw(rng, {"x": (B, I), "h_prev": (B, H), **weights})


def lstm_sequence_gradients(operands: Named, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """BlockLSTMGrad returns every gradient."""
    return {name: outputs[f"{name}_grad"] for name in (*LSTM_STATES, *LSTM_WEIGHTS)}


def lstm_cell_gradients(operands: Named, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """LSTMBlockCellGrad returns the gradients of the pre-activations, of cs_prev and of the peepholes."""
    dgates = outputs["dicfo"]
    xh = np.concatenate([operands["x"], operands["h_prev"]], axis=1)
    x_grad, h_prev_grad = np.split(dgates @ operands["w"].T, [operands["x"].shape[1]], axis=1)
    peepholes = {name: outputs[f"{name}_grad"] for name in ("cs_prev", "wci", "wcf", "wco")}
    return {"x": x_grad, "h_prev": h_prev_grad, **peepholes, "w": xh.T @ dgates, "b": dgates.sum(axis=0)}


def gru_cell_gradients(operands: Named, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """GRUBlockCellGrad returns the gradients of the pre-activations, of x and of h_prev."""
    x, h_prev = operands["x"], operands["h_prev"]
    d_c_bar, d_ru_bar = outputs["d_c_bar"], outputs["d_r_bar_u_bar"]
    return {
        "x": outputs["d_x"],
        "h_prev": outputs["d_h_prev"],
        "w_ru": np.concatenate([x, h_prev], axis=1).T @ d_ru_bar,
        "w_c": np.concatenate([x, h_prev * operands["r"]], axis=1).T @ d_c_bar,
        "b_ru": d_ru_bar.sum(axis=0),
        "b_c": d_c_bar.sum(axis=0),
    }


LSTM_COTANGENTS = {"cs_grad": "cs", "h_grad": "h"}

pairs("BlockLSTMGrad", Pairing("BlockLSTM", LSTM_COTANGENTS, lstm_sequence_gradients, sample_lstm_sequence, NO_CLIP))
pairs(
    "BlockLSTMGradV2", Pairing("BlockLSTMV2", LSTM_COTANGENTS, lstm_sequence_gradients, sample_lstm_sequence, NO_CLIP)
)
pairs("LSTMBlockCellGrad", Pairing("LSTMBlockCell", LSTM_COTANGENTS, lstm_cell_gradients, sample_lstm_cell, NO_CLIP))
pairs("GRUBlockCellGrad", Pairing("GRUBlockCell", {"d_h": "h"}, gru_cell_gradients, sample_gru_cell))
