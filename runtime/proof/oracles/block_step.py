"""One step of TensorFlow's block LSTM, forward and backward: the formulas of the whole family.

Source: core/kernels/rnn/lstm_ops.cc of TensorFlow. The backward step reads the saved activations instead of
recomputing them and treats the cell clip as the identity. Sizes: B batch, I inputs, H units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lstm_lower.runtime.proof.oracles.numerics import Array, sigmoid

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
