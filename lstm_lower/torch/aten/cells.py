"""Cells: one step of a recurrent network, by PyTorch's formulas.

PyTorch takes them apart as well, but runs the whole program again to do so.
"""

from __future__ import annotations

import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, sigmoid, tanh
from lstm_lower.torch.aten.registry import AtenCall, translates

aten = torch.ops.aten


def _linear(x: Expr, weight: Expr, bias: Expr | None) -> Expr:
    return x.builder.op(std.Gemm, x, weight, *([] if bias is None else [bias]), transB=1)


@translates(aten.rnn_tanh_cell.default)
def _rnn_tanh(
    n: AtenCall, x: Expr, h: Expr, w_ih: Expr, w_hh: Expr, b_ih: Expr | None = None, b_hh: Expr | None = None
) -> Expr:
    return tanh(_linear(h, w_hh, b_hh) + _linear(x, w_ih, b_ih))


@translates(aten.rnn_relu_cell.default)
def _rnn_relu(
    n: AtenCall, x: Expr, h: Expr, w_ih: Expr, w_hh: Expr, b_ih: Expr | None = None, b_hh: Expr | None = None
) -> Expr:
    return n.b.op(std.Relu, _linear(h, w_hh, b_hh) + _linear(x, w_ih, b_ih))


@translates(aten.gru_cell.default)
def _gru(
    n: AtenCall, x: Expr, h: Expr, w_ih: Expr, w_hh: Expr, b_ih: Expr | None = None, b_hh: Expr | None = None
) -> Expr:
    """The next state [B, H]; gates are reset, update and new (Cho et al., 2014), as the weights' rows have them."""
    x_reset, x_update, x_new = _linear(x, w_ih, b_ih).split(3, axis=1)
    h_reset, h_update, h_new = _linear(h, w_hh, b_hh).split(3, axis=1)
    new = tanh(x_new + h_new * sigmoid(h_reset + x_reset))
    return (h - new) * sigmoid(h_update + x_update) + new


@translates(aten.lstm_cell.default)
def _lstm(
    n: AtenCall,
    x: Expr,
    states: list[Expr],
    w_ih: Expr,
    w_hh: Expr,
    b_ih: Expr | None = None,
    b_hh: Expr | None = None,
) -> list[Expr]:
    """The next hidden and cell states [B, H]; gates are i, f, g and o (Hochreiter and Schmidhuber, 1997)."""
    h, c = states
    i, f, g, o = (_linear(h, w_hh, b_hh) + _linear(x, w_ih, b_ih)).split(4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return [sigmoid(o) * tanh(c), c]
