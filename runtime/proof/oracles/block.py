"""Float64 oracles of TensorFlow's block LSTM: the sequence ops, the cell, and their gradients.

All share the steps of `block_step`; they differ in the order of the gates in `w` and `b`, and in attributes.
Rows at and after `seq_len_max` are zeros, also those that TensorFlow's kernels leave uninitialised.

Sizes: T time steps, B batch, I inputs, H units. Every oracle takes TensorFlow's argument names, computes in
float64, and returns the outputs under TensorFlow's names in TensorFlow's order. Shapes are taken as verified.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.block_step import ICFO, IFCO, GateOrder, Peepholes, lstm_step, lstm_step_grad
from lstm_lower.runtime.proof.oracles.numerics import Array, clamp_steps, float64, round_attribute
from lstm_lower.runtime.proof.oracles.registry import oracle


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
