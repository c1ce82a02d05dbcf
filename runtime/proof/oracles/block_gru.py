"""Float64 oracles of GRUBlockCell and GRUBlockCellGrad.

The formulas are those of TensorFlow's kernels (core/kernels/rnn/gru_ops.cc). The reset gate applies before
the recurrent product, unlike in cuDNN's GRU. Sizes: B batch, I inputs, H units; gates are packed r, u.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.numerics import Array, float64, sigmoid
from lstm_lower.runtime.proof.oracles.registry import oracle


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
