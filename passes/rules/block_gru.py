"""Lowering of the GRU ops of the block family. Formulas: the kernels of TensorFlow's `gru_ops`."""

from __future__ import annotations

from lstm_lower.graph.builder import END, Builder, Expr, concat, sigmoid, tanh
from lstm_lower.ops.block import GRUBlockCell, GRUBlockCellGrad
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(GRUBlockCell, repeatable=True)
def gru_block_cell(n: Node, _: Builder) -> list[Expr]:
    """One GRU step, the reset gate applied before the product."""
    r, u = sigmoid(concat([n.x, n.h_prev], 1) @ n.w_ru + n.b_ru).split(2, axis=1, size=n.size("H"))
    c = tanh(concat([n.x, n.h_prev * r], 1) @ n.w_c + n.b_c)
    return [r, u, c, u * (n.h_prev - c) + c]


@lowers(GRUBlockCellGrad, repeatable=True)
def gru_block_cell_grad(n: Node, _: Builder) -> list[Expr]:
    """Gradient of one GRU step."""
    input_size = n.size("I")
    d_c_bar = n.d_h * (1 - n.u) * (1 - n.c) * (1 + n.c)
    d_u_bar = n.d_h * (n.h_prev - n.c) * n.u * (1 - n.u)
    d_x_and_hr = d_c_bar @ n.w_c.mT
    d_hr = d_x_and_hr.slice(input_size, END, axis=1)
    d_r_bar = d_hr * n.h_prev * n.r * (1 - n.r)
    d_r_bar_u_bar = concat([d_r_bar, d_u_bar], 1)
    d_x_and_h = d_r_bar_u_bar @ n.w_ru.mT
    return [
        d_x_and_h.slice(0, input_size, axis=1) + d_x_and_hr.slice(0, input_size, axis=1),
        d_x_and_h.slice(input_size, END, axis=1) + d_hr * n.r + n.d_h * n.u,
        d_c_bar,
        d_r_bar_u_bar,
    ]
