"""Float64 oracles of onnxruntime-training's recurrent layers and their gradients, step by step.

Written from ONNX's equations of LSTM and GRU; the gradients by the chain rule, gate by gate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lstm_lower.ops.ort_recurrent import GRUGrad, GRUTraining, LSTMGrad, LSTMTraining
from lstm_lower.runtime.proof.oracles.finite_differences import Named, Pairing, pairs
from lstm_lower.runtime.proof.oracles.numerics import Array, float64, sigmoid
from lstm_lower.runtime.proof.oracles.registry import oracle

# One direction: operands of that direction alone, in the order of the walk, to results in that order.
Layer = Callable[..., dict[str, Array]]

# Operands and results whose first axis is time, and whose second one is the direction where they have any.
_SEQUENCES = ("all_hidden", "all_cell", "iofc", "zrh", "d_all_hidden")


def _each_direction(layer: Layer, direction: str, operands: Mapping[str, Any], **attributes: Any) -> dict[str, Array]:
    """Runs a layer's directions, each on its part of the operands; a backwards one on sequences turned round."""
    found: list[dict[str, Array]] = []
    for index in range(2 if direction == "bidirectional" else 1):
        step = -1 if index or direction == "reverse" else 1
        part = {}
        for name, value in operands.items():
            if value is not None:
                array = float64(value)
                if name == "X":
                    part[name] = array[::step]
                else:
                    part[name] = array[::step, index] if name in _SEQUENCES else array[index]
        results = layer(**part, **attributes)
        found.append({n: v[::step] if n in (*_SEQUENCES, "dX") else v for n, v in results.items()})
    joined = {}
    for name in found[0]:
        values = [result[name] for result in found]
        joined[name] = sum(values[1:], values[0]) if name == "dX" else np.stack(values, int(name in _SEQUENCES))
    return joined


def _gates(X: Array, W: Array, R: Array, B: Array | None, count: int) -> tuple[list[Array], list[Array], Array, Array]:
    """Weights gate by gate, and both biases."""
    both = np.zeros(2 * len(R)) if B is None else B
    return np.split(W, count), np.split(R, count), both[: len(R)].reshape(count, -1), both[len(R) :].reshape(count, -1)


def _lstm(
    X: Array, W: Array, R: Array, B: Array | None = None, initial_h: Any = None, initial_c: Any = None, P: Any = None
) -> dict[str, Array]:
    w, r, bias, recurrent_bias = _gates(X, W, R, B, 4)
    zeros = np.zeros((X.shape[1], R.shape[1]))
    h, c = (zeros if state is None else state for state in (initial_h, initial_c))
    p_i, p_o, p_f = np.zeros((3, R.shape[1])) if P is None else np.split(P, 3)
    rows: dict[str, list[Array]] = {"all_hidden": [], "all_cell": [], "iofc": []}
    for x in X:
        i, o, f, g = (x @ w[k].T + h @ r[k].T + bias[k] + recurrent_bias[k] for k in range(4))
        i, f, g = sigmoid(i + p_i * c), sigmoid(f + p_f * c), np.tanh(g)
        c = f * c + i * g
        o = sigmoid(o + p_o * c)
        h = o * np.tanh(c)
        for name, row in zip(rows, (h, c, np.concatenate([i, o, f, g], 1)), strict=True):
            rows[name].append(row)
    return {**{name: np.stack(value) for name, value in rows.items()}, "final_hidden": h, "final_cell": c}


def _lstm_grad(
    X: Array,
    W: Array,
    R: Array,
    all_hidden: Array,
    all_cell: Array,
    iofc: Array,
    initial_h: Any = None,
    initial_c: Any = None,
    d_all_hidden: Any = None,
    d_final_hidden: Any = None,
    d_final_cell: Any = None,
    P: Any = None,
) -> dict[str, Array]:
    zeros = np.zeros_like(all_hidden[0])
    dh, dc, h0, c0 = (zeros if v is None else v for v in (d_final_hidden, d_final_cell, initial_h, initial_c))
    p_i, p_o, p_f = np.zeros((3, R.shape[1])) if P is None else np.split(P, 3)
    dX, dW, dR, dP = np.zeros_like(X), np.zeros_like(W), np.zeros_like(R), np.zeros((3, R.shape[1]))
    bias = np.zeros(len(R))
    for t in reversed(range(len(X))):
        h, c = (all_hidden[t - 1], all_cell[t - 1]) if t else (h0, c0)
        i, o, f, g = np.split(iofc[t], 4, axis=1)
        co = np.tanh(all_cell[t])
        dh = dh if d_all_hidden is None else dh + d_all_hidden[t]
        a_o = dh * co * o * (1 - o)
        dc = dc + dh * o * (1 - co**2) + a_o * p_o
        a_i, a_f, a_g = dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g**2)
        a = np.concatenate([a_i, a_o, a_f, a_g], 1)
        dX[t], dW, dR, bias = a @ W, dW + a.T @ X[t], dR + a.T @ h, bias + a.sum(0)
        dP = dP + np.stack([(a_i * c).sum(0), (a_o * all_cell[t]).sum(0), (a_f * c).sum(0)])
        dh, dc = a @ R, dc * f + a_i * p_i + a_f * p_f
    return {"dX": dX, "dW": dW, "dR": dR, "dB": np.tile(bias, 2), "dH0": dh, "dC0": dc, "dP": dP.ravel()}


def _gru(
    X: Array, W: Array, R: Array, B: Array | None = None, initial_h: Any = None, *, linear_before_reset: int = 0
) -> dict[str, Array]:
    (w_z, w_r, w_n), (r_z, r_r, r_n), (b_z, b_r, b_n), (c_z, c_r, c_n) = _gates(X, W, R, B, 3)
    h = np.zeros((X.shape[1], R.shape[1])) if initial_h is None else initial_h
    hidden, gates = [], []
    for x in X:
        z, r = (
            sigmoid(x @ w_z.T + h @ r_z.T + b_z + c_z),
            sigmoid(x @ w_r.T + h @ r_r.T + b_r + c_r),
        )
        n = np.tanh(x @ w_n.T + b_n + (r * (h @ r_n.T + c_n) if linear_before_reset else (r * h) @ r_n.T + c_n))
        h = (1 - z) * n + z * h
        hidden.append(h)
        gates.append(np.concatenate([z, r, n], 1))
    return {"all_hidden": np.stack(hidden), "final_hidden": h, "zrh": np.stack(gates)}


def _gru_grad(
    X: Array,
    W: Array,
    R: Array,
    all_hidden: Array,
    zrh: Array,
    B: Array | None = None,
    initial_h: Any = None,
    d_all_hidden: Any = None,
    d_final_hidden: Any = None,
    *,
    linear_before_reset: int = 0,
) -> dict[str, Array]:
    _, (r_z, r_r, r_n), _, (_, _, c_n) = _gates(X, W, R, B, 3)
    zeros = np.zeros_like(all_hidden[0])
    dh, h0 = (zeros if value is None else value for value in (d_final_hidden, initial_h))
    dX, dW, dR = np.zeros_like(X), np.zeros_like(W), np.zeros_like(R)
    biases = np.zeros((2, len(R)))
    for t in reversed(range(len(X))):
        h = all_hidden[t - 1] if t else h0
        z, r, n = np.split(zrh[t], 3, axis=1)
        dh = dh if d_all_hidden is None else dh + d_all_hidden[t]
        a_n = dh * (1 - z) * (1 - n**2)
        a_z = dh * (h - n) * z * (1 - z)
        if linear_before_reset:
            a_r, side, into = a_n * (h @ r_n.T + c_n) * r * (1 - r), a_n * r, (a_n * r) @ r_n
            d_n = side.T @ h
        else:
            a_r, side, into = (a_n @ r_n) * h * r * (1 - r), a_n, (a_n @ r_n) * r
            d_n = a_n.T @ (r * h)
        a = np.concatenate([a_z, a_r, a_n], 1)
        dX[t], dW = a @ W, dW + a.T @ X[t]
        dR = dR + np.concatenate([a_z.T @ h, a_r.T @ h, d_n])
        biases = biases + np.stack([a.sum(0), np.concatenate([a_z, a_r, side], 1).sum(0)])
        dh = dh * z + a_z @ r_z + a_r @ r_r + into
    return {"dX": dX, "dW": dW, "dR": dR, "dB": biases.ravel(), "dH0": dh}


def _register(op: Any, layer: Layer) -> None:
    known = inspect.signature(layer).parameters
    operands = [declared.name for declared in op.inputs if declared.name in known]
    attributes = [attribute.name for attribute in op.attributes]

    def evaluate(direction: str = "forward", **given: Any) -> dict[str, Array]:
        own = {name: given[name] for name in attributes if name in given and name in known}
        found = _each_direction(layer, direction, {name: given.get(name) for name in operands}, **own)
        return {output.name: found[output.name] for output in op.outputs}

    # By its signature a caller tells what it takes.
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, keyword) for name in (*operands, *attributes)]
    evaluate.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    oracle(op)(evaluate)


_register(LSTMTraining, _lstm)
_register(LSTMGrad, _lstm_grad)
_register(GRUTraining, _gru)
_register(GRUGrad, _gru_grad)


def _sample(gates: int) -> Callable[[np.random.Generator, Named], dict[str, Any]]:
    def sample(rng: np.random.Generator, attributes: Named) -> dict[str, Any]:
        time, batch, size, units = 3, 2, 3, attributes.get("hidden_size", 2)
        count = 2 if attributes.get("direction") == "bidirectional" else 1
        shapes: dict[str, tuple[int, ...]] = {
            "X": (time, batch, size),
            "W": (count, gates * units, size),
            "R": (count, gates * units, units),
            "B": (count, 2 * gates * units),
            "initial_h": (count, batch, units),
        }
        if gates == 4:
            shapes |= {"initial_c": (count, batch, units), "P": (count, 3 * units)}
        return {name: 0.7 * rng.standard_normal(shape) for name, shape in shapes.items()}

    return sample


_NAMES = {"X": "dX", "W": "dW", "R": "dR", "B": "dB", "initial_h": "dH0", "initial_c": "dC0", "P": "dP"}


def _gradients(operands: Named, outputs: Mapping[str, Array]) -> dict[str, Array]:
    return {name: outputs[output] for name, output in _NAMES.items() if output in outputs}


_COTANGENTS = {f"d_{name}": name for name in ("all_hidden", "final_hidden", "final_cell")}
pairs(LSTMGrad, Pairing(LSTMTraining, _COTANGENTS, _gradients, _sample(4)))
pairs(
    GRUGrad,
    Pairing(GRUTraining, {k: v for k, v in _COTANGENTS.items() if v != "final_cell"}, _gradients, _sample(3)),
)
