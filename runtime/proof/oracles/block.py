"""Float64 oracles of TensorFlow's block LSTM and GRU: the sequence ops, the cells, and their gradients.

The sequence ops of LSTM share the steps; they differ in the order of the gates in `w` and `b`, and in attributes.
Rows at and after `seq_len_max` are zeros, also those that TensorFlow's kernels leave uninitialised.

Sizes: T time steps, B batch, I inputs, H units. Every oracle takes TensorFlow's argument names, computes in
float64, and returns the outputs under TensorFlow's names in TensorFlow's order. Shapes are taken as verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.finite_differences import Named, Pairing, pairs
from lstm_lower.runtime.proof.oracles.numerics import Array, clamp_steps, float64, round_attribute, sigmoid
from lstm_lower.runtime.proof.oracles.registry import oracle

GateOrder = tuple[str, str, str, str]
ICFO: GateOrder = ("i", "c", "f", "o")  # BlockLSTM, BlockLSTMGrad, LSTMBlockCell, LSTMBlockCellGrad
IFCO: GateOrder = ("i", "f", "c", "o")  # BlockLSTMV2, BlockLSTMGradV2
PEEPHOLE_GRADIENTS = ("wci_grad", "wcf_grad", "wco_grad")


@dataclass(frozen=True)
class Peepholes:
    """Peephole weights [H] of the input, forget and output gate.

    Attributes:
        enabled: whether they are read at all; if not they may hold anything, NaN included.
    """

    wci: Array
    wcf: Array
    wco: Array
    enabled: bool

    def peep(self, weight: Array, value: Array) -> Array | float:
        """A peephole term, absent when disabled."""
        return weight * value if self.enabled else 0.0

    def zero_gradients(self) -> dict[str, Array]:
        """Gradients of the three weights before anything was added."""
        weights = (self.wci, self.wcf, self.wco)
        return {name: np.zeros_like(weight) for name, weight in zip(PEEPHOLE_GRADIENTS, weights, strict=True)}


def split_gates(gates: Array, order: GateOrder) -> dict[str, Array]:
    """Takes [B, 4H] apart by gate."""
    return dict(zip(order, np.split(gates, 4, axis=-1), strict=True))


def join_gates(gates: Mapping[str, Array], order: GateOrder) -> Array:
    """Packs four [B, H] into [B, 4H]."""
    return np.concatenate([gates[gate] for gate in order], axis=-1)


def lstm_step(
    x: Array,
    cs_prev: Array,
    h_prev: Array,
    w: Array,
    b: Array,
    peepholes: Peepholes,
    *,
    order: GateOrder,
    forget_bias: float,
    cell_clip: float,
) -> dict[str, Array]:
    """One step forward.

    Args:
        x: [B, I].
        cs_prev: cell state [B, H].
        h_prev: hidden state [B, H].
        w: [I+H, 4H], the input's rows first.
        b: [4H].
        peepholes: weights from the cell state to the gates.
        order: order of the gates in the columns of `w` and `b`.
        forget_bias: added to the pre-activation of the forget gate.
        cell_clip: bound of the cell state; zero, negative and NaN mean none.

    Returns:
        i, cs, f, o, ci, co, h, each [B, H].
    """
    pre = split_gates(np.concatenate([x, h_prev], axis=1) @ w + b, order)
    i = sigmoid(pre["i"] + peepholes.peep(peepholes.wci, cs_prev))
    ci = np.tanh(pre["c"])
    f = sigmoid(pre["f"] + forget_bias + peepholes.peep(peepholes.wcf, cs_prev))
    cs = i * ci + f * cs_prev
    if cell_clip > 0:
        cs = np.clip(cs, -cell_clip, cell_clip)
    co = np.tanh(cs)
    o = sigmoid(pre["o"] + peepholes.peep(peepholes.wco, cs))
    return {"i": i, "cs": cs, "f": f, "o": o, "ci": ci, "co": co, "h": o * co}


@dataclass(frozen=True)
class StepGradient:
    """Gradients of one step backward.

    Attributes:
        cs_prev: gradient of the previous cell state [B, H].
        gates: gradient of the pre-activations [B, 4H], in the op's gate order.
        peepholes: wci_grad, wcf_grad, wco_grad [H].
    """

    cs_prev: Array
    gates: Array
    peepholes: dict[str, Array]


def lstm_step_grad(
    cs_prev: Array,
    saved: Mapping[str, Array],
    cs_grad: Array,
    h_grad: Array,
    peepholes: Peepholes,
    order: GateOrder,
) -> StepGradient:
    """One step backward, up to the products with the weights.

    Args:
        cs_prev: cell state before the step [B, H].
        saved: the step's i, f, o, ci, co and (read with peepholes only) cs, each [B, H].
        cs_grad: gradient of the step's cell state [B, H], without the part that comes through h.
        h_grad: gradient of the step's hidden state [B, H].
        peepholes: weights from the cell state to the gates.
        order: order of the gates in the result.
    """
    i, f, o, ci, co = (saved[name] for name in ("i", "f", "o", "ci", "co"))
    do = o * (1 - o) * h_grad * co
    dcs = (1 - co * co) * h_grad * o + cs_grad + peepholes.peep(peepholes.wco, do)
    dci = (1 - ci * ci) * dcs * i
    df = f * (1 - f) * dcs * cs_prev
    di = i * (1 - i) * dcs * ci
    cs_prev_grad = dcs * f + peepholes.peep(peepholes.wci, di) + peepholes.peep(peepholes.wcf, df)
    gradients = peepholes.zero_gradients()
    if peepholes.enabled:
        seen = ((di, cs_prev), (df, cs_prev), (do, saved["cs"]))
        gradients = {name: (gate * state).sum(axis=0) for name, (gate, state) in zip(gradients, seen, strict=True)}
    return StepGradient(cs_prev_grad, join_gates({"i": di, "c": dci, "f": df, "o": do}, order), gradients)


@oracle("GRUBlockCell")
def gru_block_cell(
    *,
    x: npt.ArrayLike,
    h_prev: npt.ArrayLike,
    w_ru: npt.ArrayLike,
    w_c: npt.ArrayLike,
    b_ru: npt.ArrayLike,
    b_c: npt.ArrayLike,
) -> dict[str, Array]:
    """One GRU step.

    Args:
        x: [B, I].
        h_prev: [B, H].
        w_ru: [I+H, 2H], columns r then u.
        w_c: [I+H, H].
        b_ru: [2H].
        b_c: [H].

    Returns:
        r, u, c, h, each [B, H].
    """
    x, h_prev = float64(x), float64(h_prev)
    r, u = np.split(sigmoid(np.concatenate([x, h_prev], axis=1) @ float64(w_ru) + float64(b_ru)), 2, axis=1)
    c = np.tanh(np.concatenate([x, h_prev * r], axis=1) @ float64(w_c) + float64(b_c))
    return {"r": r, "u": u, "c": c, "h": u * h_prev + (1 - u) * c}


@oracle("GRUBlockCellGrad")
def gru_block_cell_grad(
    *,
    x: npt.ArrayLike,
    h_prev: npt.ArrayLike,
    w_ru: npt.ArrayLike,
    w_c: npt.ArrayLike,
    b_ru: npt.ArrayLike,  # its shape only, as with b_c
    b_c: npt.ArrayLike,
    r: npt.ArrayLike,
    u: npt.ArrayLike,
    c: npt.ArrayLike,
    d_h: npt.ArrayLike,
) -> dict[str, Array]:
    """Gradient of one GRU step; weight and bias gradients are left to the graph around it.

    Returns:
        d_x [B, I], d_h_prev [B, H], and the gradients of the pre-activations: d_c_bar [B, H],
        d_r_bar_u_bar [B, 2H].
    """
    inputs = np.shape(x)[1]
    h_prev, r, u, c, d_h = (float64(value) for value in (h_prev, r, u, c, d_h))
    d_c_bar = d_h * (1 - u) * (1 - c * c)
    d_u_bar = d_h * (h_prev - c) * u * (1 - u)
    d_x_hr = d_c_bar @ float64(w_c).T
    d_hr = d_x_hr[:, inputs:]
    d_r_bar = d_hr * h_prev * r * (1 - r)
    d_r_bar_u_bar = np.concatenate([d_r_bar, d_u_bar], axis=1)
    d_x_h = d_r_bar_u_bar @ float64(w_ru).T
    return {
        "d_x": d_x_h[:, :inputs] + d_x_hr[:, :inputs],
        "d_h_prev": d_x_h[:, inputs:] + d_hr * r + d_h * u,
        "d_c_bar": d_c_bar,
        "d_r_bar_u_bar": d_r_bar_u_bar,
    }


@oracle("BlockLSTM")
def block_lstm(
    *,
    seq_len_max: npt.ArrayLike,
    x: npt.ArrayLike,
    cs_prev: npt.ArrayLike,
    h_prev: npt.ArrayLike,
    w: npt.ArrayLike,
    wci: npt.ArrayLike,
    wcf: npt.ArrayLike,
    wco: npt.ArrayLike,
    b: npt.ArrayLike,
    forget_bias: float = 1.0,
    cell_clip: float = 3.0,
    use_peephole: bool = False,
    order: GateOrder = ICFO,
) -> dict[str, Array]:
    """LSTM over a sequence: steps of `lstm_step` up to `seq_len_max`, zeros from there on.

    Returns:
        i, cs, f, o, ci, co, h, each [T, B, H].
    """
    clip, bias = round_attribute(cell_clip, x), round_attribute(forget_bias, x)
    x, cs, h, w, b = float64(x), float64(cs_prev), float64(h_prev), float64(w), float64(b)
    peepholes = Peepholes(float64(wci), float64(wcf), float64(wco), use_peephole)
    outputs = {name: np.zeros((len(x), *cs.shape)) for name in ("i", "cs", "f", "o", "ci", "co", "h")}
    for t in range(clamp_steps(seq_len_max, len(x))):
        step = lstm_step(x[t], cs, h, w, b, peepholes, order=order, forget_bias=bias, cell_clip=clip)
        for name, value in step.items():
            outputs[name][t] = value
        cs, h = step["cs"], step["h"]
    return outputs


@oracle("BlockLSTMV2")
def block_lstm_v2(
    *,
    seq_len_max: npt.ArrayLike,
    x: npt.ArrayLike,
    cs_prev: npt.ArrayLike,
    h_prev: npt.ArrayLike,
    w: npt.ArrayLike,
    wci: npt.ArrayLike,
    wcf: npt.ArrayLike,
    wco: npt.ArrayLike,
    b: npt.ArrayLike,
    cell_clip: float = 0.0,
    use_peephole: bool = False,
) -> dict[str, Array]:
    """BlockLSTM with the gates packed i, f, c, o, no forget bias, and the clip off unless asked for."""
    weights = {"w": w, "wci": wci, "wcf": wcf, "wco": wco, "b": b}
    return block_lstm(
        seq_len_max=seq_len_max, x=x, cs_prev=cs_prev, h_prev=h_prev, **weights,
        forget_bias=0.0, cell_clip=cell_clip, use_peephole=use_peephole, order=IFCO,
    )  # fmt: skip


@oracle("BlockLSTMGrad")
def block_lstm_grad(
    *,
    seq_len_max: npt.ArrayLike,
    x: npt.ArrayLike,
    cs_prev: npt.ArrayLike,
    h_prev: npt.ArrayLike,
    w: npt.ArrayLike,
    wci: npt.ArrayLike,
    wcf: npt.ArrayLike,
    wco: npt.ArrayLike,
    b: npt.ArrayLike,
    i: npt.ArrayLike,
    cs: npt.ArrayLike,
    f: npt.ArrayLike,
    o: npt.ArrayLike,
    ci: npt.ArrayLike,
    co: npt.ArrayLike,
    h: npt.ArrayLike,
    cs_grad: npt.ArrayLike,
    h_grad: npt.ArrayLike,
    use_peephole: bool,
    order: GateOrder = ICFO,
) -> dict[str, Array]:
    """Gradient of BlockLSTM from the saved activations; steps at and after `seq_len_max` are not read.

    `cs_grad` and `h_grad` are gradients of the whole sequences: they enter at every step.

    Returns:
        x_grad [T, B, I]; cs_prev_grad and h_prev_grad [B, H]; w_grad [I+H, 4H];
        wci_grad, wcf_grad and wco_grad [H]; b_grad [4H].
    """
    x, cs_prev, h_prev, w, cs, h = (float64(value) for value in (x, cs_prev, h_prev, w, cs, h))
    named = {"i": i, "cs": cs, "f": f, "o": o, "ci": ci, "co": co}
    saved = {name: float64(value) for name, value in named.items()}
    cs_grad, h_grad = float64(cs_grad), float64(h_grad)
    peepholes = Peepholes(float64(wci), float64(wcf), float64(wco), use_peephole)
    inputs = x.shape[2]
    x_grad, w_grad, b_grad = np.zeros_like(x), np.zeros_like(w), np.zeros(np.shape(b))
    dcs, dh = np.zeros_like(cs_prev), np.zeros_like(h_prev)
    peephole_grads = peepholes.zero_gradients()
    for t in reversed(range(clamp_steps(seq_len_max, len(x)))):
        before, h_before = (cs[t - 1], h[t - 1]) if t else (cs_prev, h_prev)
        now = {name: value[t] for name, value in saved.items()}
        step = lstm_step_grad(before, now, cs_grad[t] + dcs, h_grad[t] + dh, peepholes, order)
        xh_grad = step.gates @ w.T
        x_grad[t], dh, dcs = xh_grad[:, :inputs], xh_grad[:, inputs:], step.cs_prev
        w_grad += np.concatenate([x[t], h_before], axis=1).T @ step.gates
        b_grad += step.gates.sum(axis=0)
        peephole_grads = {name: total + step.peepholes[name] for name, total in peephole_grads.items()}
    states = {"x_grad": x_grad, "cs_prev_grad": dcs, "h_prev_grad": dh}
    return {**states, "w_grad": w_grad, **peephole_grads, "b_grad": b_grad}


oracle("BlockLSTMGradV2")(partial(block_lstm_grad, order=IFCO))


@oracle("LSTMBlockCell")
def lstm_block_cell(
    *,
    x: npt.ArrayLike,
    cs_prev: npt.ArrayLike,
    h_prev: npt.ArrayLike,
    w: npt.ArrayLike,
    wci: npt.ArrayLike,
    wcf: npt.ArrayLike,
    wco: npt.ArrayLike,
    b: npt.ArrayLike,
    forget_bias: float = 1.0,
    cell_clip: float = 3.0,
    use_peephole: bool = False,
) -> dict[str, Array]:
    """One step of BlockLSTM.

    Returns:
        i, cs, f, o, ci, co, h, each [B, H].
    """
    return lstm_step(
        float64(x),
        float64(cs_prev),
        float64(h_prev),
        float64(w),
        float64(b),
        Peepholes(float64(wci), float64(wcf), float64(wco), use_peephole),
        order=ICFO,
        forget_bias=round_attribute(forget_bias, x),
        cell_clip=round_attribute(cell_clip, x),
    )


@oracle("LSTMBlockCellGrad")
def lstm_block_cell_grad(
    *,
    x: npt.ArrayLike,  # its shape only, as with h_prev, w and b
    cs_prev: npt.ArrayLike,
    h_prev: npt.ArrayLike,
    w: npt.ArrayLike,
    wci: npt.ArrayLike,
    wcf: npt.ArrayLike,
    wco: npt.ArrayLike,
    b: npt.ArrayLike,
    i: npt.ArrayLike,
    cs: npt.ArrayLike,
    f: npt.ArrayLike,
    o: npt.ArrayLike,
    ci: npt.ArrayLike,
    co: npt.ArrayLike,
    cs_grad: npt.ArrayLike,
    h_grad: npt.ArrayLike,
    use_peephole: bool,
) -> dict[str, Array]:
    """Gradient of one step up to the pre-activations; the products with the weights are left to the graph.

    Returns:
        cs_prev_grad [B, H], dicfo [B, 4H], wci_grad, wcf_grad, wco_grad [H].
    """
    named = {"i": i, "cs": cs, "f": f, "o": o, "ci": ci, "co": co}
    saved = {name: float64(value) for name, value in named.items()}
    peepholes = Peepholes(float64(wci), float64(wcf), float64(wco), use_peephole)
    step = lstm_step_grad(float64(cs_prev), saved, float64(cs_grad), float64(h_grad), peepholes, ICFO)
    return {"cs_prev_grad": step.cs_prev, "dicfo": step.gates, **step.peepholes}


# Which block op is the gradient of which, for `finite_differences`.
#
# The cells' gradient ops stop at the pre-activations; the products with the weights are made here, as TensorFlow's
# Python gradients of the cells made them (tensorflow/contrib/rnn of TensorFlow 1).


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
