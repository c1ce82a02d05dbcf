"""One step of the block family's LSTM, forward and backward: the formulas that all its ops share.

Formulas: the kernels of TensorFlow's `lstm_ops`. Derivatives of tanh are written `(1-y)*(1+y)`, which does not cancel
near saturation. Gates come packed in the op's gate order, `icfo` or `ifco`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat, sigmoid, tanh


@dataclasses.dataclass(frozen=True)
class Peephole:
    """Peephole weights, each of shape [H]."""

    i: Expr
    f: Expr
    o: Expr


@dataclasses.dataclass(frozen=True)
class LSTMStep:
    """The activations of one LSTM step, each of shape [B, H]; `ci` is the cell input, `co` is tanh(cs)."""

    i: Expr
    cs: Expr
    f: Expr
    o: Expr
    ci: Expr
    co: Expr
    h: Expr


def lstm_step(
    gates: Expr,
    cs_prev: Expr,
    peephole: Peephole | None,
    *,
    forget_bias: float = 0.0,
    cell_clip: float,
    units: int | Expr,
    order: Sequence[str],
) -> LSTMStep:
    """One LSTM step from the gates' pre-activations [B, 4H]."""
    pre = dict(zip(order, gates.split(4, axis=1, size=units), strict=True))
    pre_f = pre["f"] + forget_bias if forget_bias else pre["f"]
    i = sigmoid(pre["i"] + cs_prev * peephole.i if peephole else pre["i"])
    f = sigmoid(pre_f + cs_prev * peephole.f if peephole else pre_f)
    ci = tanh(pre["c"])
    cs = i * ci + f * cs_prev
    if cell_clip > 0:
        # Not Min and Max of the whole: a NaN must stay one, and ONNX leaves open which operand of Min wins over it.
        cs = clip(cs, cell_clip)
    co = tanh(cs)
    o = sigmoid(pre["o"] + cs * peephole.o if peephole else pre["o"])
    return LSTMStep(i, cs, f, o, ci, co, o * co)


def clip(x: Expr, bound: float) -> Expr:
    """Limits to -bound..bound; a NaN stays NaN."""
    if math.isinf(bound):
        return x
    return x.builder.op(std.Clip, x, x.like(-bound), x.like(bound))


@dataclasses.dataclass(frozen=True)
class LSTMStepGrad:
    """Gradients of one LSTM step: of the gates' pre-activations [B, 4H] (and i, f, o apart) and of cs_prev [B, H]."""

    gates: Expr
    i: Expr
    f: Expr
    o: Expr
    cs_prev: Expr


def lstm_step_grad(
    s: LSTMStep, cs_prev: Expr, dcs: Expr, dh: Expr, peephole: Peephole | None, order: Sequence[str]
) -> LSTMStepGrad:
    """Gradient of one LSTM step; `dcs` and `dh` are the gradients of cs and h. The clip counts as identity."""
    do = s.o * (1 - s.o) * dh * s.co
    dcs = (1 - s.co) * (1 + s.co) * dh * s.o + dcs
    if peephole:
        dcs = dcs + do * peephole.o
    dci = (1 - s.ci) * (1 + s.ci) * dcs * s.i
    df = s.f * (1 - s.f) * dcs * cs_prev
    di = s.i * (1 - s.i) * dcs * s.ci
    dcs_prev = dcs * s.f
    if peephole:
        dcs_prev = dcs_prev + di * peephole.i + df * peephole.f
    by_gate = {"i": di, "c": dci, "f": df, "o": do}
    return LSTMStepGrad(concat([by_gate[gate] for gate in order], 1), di, df, do, dcs_prev)
