"""Recurrent ops, one call at a time: TensorFlow's `tf.raw_ops` signatures without TensorFlow.

Arguments are keyword-only, with TensorFlow's names; arrays in, a NamedTuple of numpy arrays out (one array where the op
has a single output). Each op is lowered once per attributes and dtypes and runs in onnxruntime on the CPU.

Written by `python -m lstm_lower.raw_ops_source` from the op definitions; do not edit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime import eager

Array = np.ndarray[Any, Any]

__all__ = [
    "BlockLSTM",
    "BlockLSTMGrad",
    "BlockLSTMGradV2",
    "BlockLSTMV2",
    "GRUBlockCell",
    "GRUBlockCellGrad",
    "LSTMBlockCell",
    "LSTMBlockCellGrad",
]


class BlockLSTMOutputs(NamedTuple):
    """Outputs of BlockLSTM."""

    i: Array
    cs: Array
    f: Array
    o: Array
    ci: Array
    co: Array
    h: Array


def BlockLSTM(
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
    name: str | None = None,
) -> BlockLSTMOutputs:
    """LSTM over a sequence with optional peepholes and cell clip; gates packed i, c, f, o.

    Args:
        seq_len_max: [], int64.
        x: [T, B, I], float16 or float32.
        cs_prev: [B, H], float16 or float32.
        h_prev: [B, H], float16 or float32.
        w: [I+H, 4*H], float16 or float32.
        wci: [H], float16 or float32.
        wcf: [H], float16 or float32.
        wco: [H], float16 or float32.
        b: [4*H], float16 or float32.
        forget_bias: float, default 1.0.
        cell_clip: float, default 3.0.
        use_peephole: bool, default False.
        name: stands for the node in error messages.

    Returns:
        i [T, B, H], float16 or float32; cs [T, B, H], float16 or float32; f [T, B, H], float16 or
        float32; o [T, B, H], float16 or float32; ci [T, B, H], float16 or float32; co [T, B, H],
        float16 or float32; h [T, B, H], float16 or float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """
    outputs = eager.call(
        "BlockLSTM",
        {
            "seq_len_max": seq_len_max,
            "x": x,
            "cs_prev": cs_prev,
            "h_prev": h_prev,
            "w": w,
            "wci": wci,
            "wcf": wcf,
            "wco": wco,
            "b": b,
        },
        {
            "forget_bias": forget_bias,
            "cell_clip": cell_clip,
            "use_peephole": use_peephole,
        },
        name,
    )
    return BlockLSTMOutputs(**outputs)


class BlockLSTMV2Outputs(NamedTuple):
    """Outputs of BlockLSTMV2."""

    i: Array
    cs: Array
    f: Array
    o: Array
    ci: Array
    co: Array
    h: Array


def BlockLSTMV2(
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
    name: str | None = None,
) -> BlockLSTMV2Outputs:
    """LSTM over a sequence with optional peepholes and cell clip; gates packed i, f, c, o; no forget bias.

    Args:
        seq_len_max: [], int64.
        x: [T, B, I], float16 or float32.
        cs_prev: [B, H], float16 or float32.
        h_prev: [B, H], float16 or float32.
        w: [I+H, 4*H], float16 or float32.
        wci: [H], float16 or float32.
        wcf: [H], float16 or float32.
        wco: [H], float16 or float32.
        b: [4*H], float16 or float32.
        cell_clip: float, default 0.0.
        use_peephole: bool, default False.
        name: stands for the node in error messages.

    Returns:
        i [T, B, H], float16 or float32; cs [T, B, H], float16 or float32; f [T, B, H], float16 or
        float32; o [T, B, H], float16 or float32; ci [T, B, H], float16 or float32; co [T, B, H],
        float16 or float32; h [T, B, H], float16 or float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """
    outputs = eager.call(
        "BlockLSTMV2",
        {
            "seq_len_max": seq_len_max,
            "x": x,
            "cs_prev": cs_prev,
            "h_prev": h_prev,
            "w": w,
            "wci": wci,
            "wcf": wcf,
            "wco": wco,
            "b": b,
        },
        {
            "cell_clip": cell_clip,
            "use_peephole": use_peephole,
        },
        name,
    )
    return BlockLSTMV2Outputs(**outputs)


class BlockLSTMGradOutputs(NamedTuple):
    """Outputs of BlockLSTMGrad."""

    x_grad: Array
    cs_prev_grad: Array
    h_prev_grad: Array
    w_grad: Array
    wci_grad: Array
    wcf_grad: Array
    wco_grad: Array
    b_grad: Array


def BlockLSTMGrad(
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
    name: str | None = None,
) -> BlockLSTMGradOutputs:
    """Gradient of BlockLSTM over a sequence, from the saved activations; gates packed i, c, f, o.

    cs_grad and h_grad are gradients of the whole sequences cs and h. The cell clip has no gradient of its own.

    Args:
        seq_len_max: [], int64.
        x: [T, B, I], float16 or float32.
        cs_prev: [B, H], float16 or float32.
        h_prev: [B, H], float16 or float32.
        w: [I+H, 4*H], float16 or float32.
        wci: [H], float16 or float32.
        wcf: [H], float16 or float32.
        wco: [H], float16 or float32.
        b: [4*H], float16 or float32.
        i: [T, B, H], float16 or float32.
        cs: [T, B, H], float16 or float32.
        f: [T, B, H], float16 or float32.
        o: [T, B, H], float16 or float32.
        ci: [T, B, H], float16 or float32.
        co: [T, B, H], float16 or float32.
        h: [T, B, H], float16 or float32.
        cs_grad: [T, B, H], float16 or float32.
        h_grad: [T, B, H], float16 or float32.
        use_peephole: bool.
        name: stands for the node in error messages.

    Returns:
        x_grad [T, B, I], float16 or float32; cs_prev_grad [B, H], float16 or float32; h_prev_grad [B,
        H], float16 or float32; w_grad [I+H, 4*H], float16 or float32; wci_grad [H], float16 or float32;
        wcf_grad [H], float16 or float32; wco_grad [H], float16 or float32; b_grad [4*H], float16 or
        float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """
    outputs = eager.call(
        "BlockLSTMGrad",
        {
            "seq_len_max": seq_len_max,
            "x": x,
            "cs_prev": cs_prev,
            "h_prev": h_prev,
            "w": w,
            "wci": wci,
            "wcf": wcf,
            "wco": wco,
            "b": b,
            "i": i,
            "cs": cs,
            "f": f,
            "o": o,
            "ci": ci,
            "co": co,
            "h": h,
            "cs_grad": cs_grad,
            "h_grad": h_grad,
        },
        {
            "use_peephole": use_peephole,
        },
        name,
    )
    return BlockLSTMGradOutputs(**outputs)


class BlockLSTMGradV2Outputs(NamedTuple):
    """Outputs of BlockLSTMGradV2."""

    x_grad: Array
    cs_prev_grad: Array
    h_prev_grad: Array
    w_grad: Array
    wci_grad: Array
    wcf_grad: Array
    wco_grad: Array
    b_grad: Array


def BlockLSTMGradV2(
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
    name: str | None = None,
) -> BlockLSTMGradV2Outputs:
    """Gradient of BlockLSTMV2 over a sequence, from the saved activations; gates packed i, f, c, o.

    Args:
        seq_len_max: [], int64.
        x: [T, B, I], float16 or float32.
        cs_prev: [B, H], float16 or float32.
        h_prev: [B, H], float16 or float32.
        w: [I+H, 4*H], float16 or float32.
        wci: [H], float16 or float32.
        wcf: [H], float16 or float32.
        wco: [H], float16 or float32.
        b: [4*H], float16 or float32.
        i: [T, B, H], float16 or float32.
        cs: [T, B, H], float16 or float32.
        f: [T, B, H], float16 or float32.
        o: [T, B, H], float16 or float32.
        ci: [T, B, H], float16 or float32.
        co: [T, B, H], float16 or float32.
        h: [T, B, H], float16 or float32.
        cs_grad: [T, B, H], float16 or float32.
        h_grad: [T, B, H], float16 or float32.
        use_peephole: bool.
        name: stands for the node in error messages.

    Returns:
        x_grad [T, B, I], float16 or float32; cs_prev_grad [B, H], float16 or float32; h_prev_grad [B,
        H], float16 or float32; w_grad [I+H, 4*H], float16 or float32; wci_grad [H], float16 or float32;
        wcf_grad [H], float16 or float32; wco_grad [H], float16 or float32; b_grad [4*H], float16 or
        float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """
    outputs = eager.call(
        "BlockLSTMGradV2",
        {
            "seq_len_max": seq_len_max,
            "x": x,
            "cs_prev": cs_prev,
            "h_prev": h_prev,
            "w": w,
            "wci": wci,
            "wcf": wcf,
            "wco": wco,
            "b": b,
            "i": i,
            "cs": cs,
            "f": f,
            "o": o,
            "ci": ci,
            "co": co,
            "h": h,
            "cs_grad": cs_grad,
            "h_grad": h_grad,
        },
        {
            "use_peephole": use_peephole,
        },
        name,
    )
    return BlockLSTMGradV2Outputs(**outputs)


class LSTMBlockCellOutputs(NamedTuple):
    """Outputs of LSTMBlockCell."""

    i: Array
    cs: Array
    f: Array
    o: Array
    ci: Array
    co: Array
    h: Array


def LSTMBlockCell(
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
    name: str | None = None,
) -> LSTMBlockCellOutputs:
    """One LSTM step with optional peepholes and cell clip; gates packed i, c, f, o.

    Args:
        x: [B, I], float16 or float32.
        cs_prev: [B, H], float16 or float32.
        h_prev: [B, H], float16 or float32.
        w: [I+H, 4*H], float16 or float32.
        wci: [H], float16 or float32.
        wcf: [H], float16 or float32.
        wco: [H], float16 or float32.
        b: [4*H], float16 or float32.
        forget_bias: float, default 1.0.
        cell_clip: float, default 3.0.
        use_peephole: bool, default False.
        name: stands for the node in error messages.

    Returns:
        i [B, H], float16 or float32; cs [B, H], float16 or float32; f [B, H], float16 or float32; o [B,
        H], float16 or float32; ci [B, H], float16 or float32; co [B, H], float16 or float32; h [B, H],
        float16 or float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """
    outputs = eager.call(
        "LSTMBlockCell",
        {
            "x": x,
            "cs_prev": cs_prev,
            "h_prev": h_prev,
            "w": w,
            "wci": wci,
            "wcf": wcf,
            "wco": wco,
            "b": b,
        },
        {
            "forget_bias": forget_bias,
            "cell_clip": cell_clip,
            "use_peephole": use_peephole,
        },
        name,
    )
    return LSTMBlockCellOutputs(**outputs)


class LSTMBlockCellGradOutputs(NamedTuple):
    """Outputs of LSTMBlockCellGrad."""

    cs_prev_grad: Array
    dicfo: Array
    wci_grad: Array
    wcf_grad: Array
    wco_grad: Array


def LSTMBlockCellGrad(
    *,
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
    cs_grad: npt.ArrayLike,
    h_grad: npt.ArrayLike,
    use_peephole: bool,
    name: str | None = None,
) -> LSTMBlockCellGradOutputs:
    """Gradient of one LSTMBlockCell step; dicfo is the gradient of the gates' pre-activations, packed i, c, f, o.

    The gradients of x, h_prev, w and b are products with dicfo and are not part of the op.

    Args:
        x: [B, I], float16 or float32.
        cs_prev: [B, H], float16 or float32.
        h_prev: [B, H], float16 or float32.
        w: [I+H, 4*H], float16 or float32.
        wci: [H], float16 or float32.
        wcf: [H], float16 or float32.
        wco: [H], float16 or float32.
        b: [4*H], float16 or float32.
        i: [B, H], float16 or float32.
        cs: [B, H], float16 or float32.
        f: [B, H], float16 or float32.
        o: [B, H], float16 or float32.
        ci: [B, H], float16 or float32.
        co: [B, H], float16 or float32.
        cs_grad: [B, H], float16 or float32.
        h_grad: [B, H], float16 or float32.
        use_peephole: bool.
        name: stands for the node in error messages.

    Returns:
        cs_prev_grad [B, H], float16 or float32; dicfo [B, 4*H], float16 or float32; wci_grad [H],
        float16 or float32; wcf_grad [H], float16 or float32; wco_grad [H], float16 or float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """
    outputs = eager.call(
        "LSTMBlockCellGrad",
        {
            "x": x,
            "cs_prev": cs_prev,
            "h_prev": h_prev,
            "w": w,
            "wci": wci,
            "wcf": wcf,
            "wco": wco,
            "b": b,
            "i": i,
            "cs": cs,
            "f": f,
            "o": o,
            "ci": ci,
            "co": co,
            "cs_grad": cs_grad,
            "h_grad": h_grad,
        },
        {
            "use_peephole": use_peephole,
        },
        name,
    )
    return LSTMBlockCellGradOutputs(**outputs)


class GRUBlockCellOutputs(NamedTuple):
    """Outputs of GRUBlockCell."""

    r: Array
    u: Array
    c: Array
    h: Array


def GRUBlockCell(
    *,
    x: npt.ArrayLike,
    h_prev: npt.ArrayLike,
    w_ru: npt.ArrayLike,
    w_c: npt.ArrayLike,
    b_ru: npt.ArrayLike,
    b_c: npt.ArrayLike,
    name: str | None = None,
) -> GRUBlockCellOutputs:
    """One GRU step that applies the reset gate before the product; gates packed r, u.

    Args:
        x: [B, I], float32.
        h_prev: [B, H], float32.
        w_ru: [I+H, 2*H], float32.
        w_c: [I+H, H], float32.
        b_ru: [2*H], float32.
        b_c: [H], float32.
        name: stands for the node in error messages.

    Returns:
        r [B, H], float32; u [B, H], float32; c [B, H], float32; h [B, H], float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """
    outputs = eager.call(
        "GRUBlockCell",
        {
            "x": x,
            "h_prev": h_prev,
            "w_ru": w_ru,
            "w_c": w_c,
            "b_ru": b_ru,
            "b_c": b_c,
        },
        {},
        name,
    )
    return GRUBlockCellOutputs(**outputs)


class GRUBlockCellGradOutputs(NamedTuple):
    """Outputs of GRUBlockCellGrad."""

    d_x: Array
    d_h_prev: Array
    d_c_bar: Array
    d_r_bar_u_bar: Array


def GRUBlockCellGrad(
    *,
    x: npt.ArrayLike,
    h_prev: npt.ArrayLike,
    w_ru: npt.ArrayLike,
    w_c: npt.ArrayLike,
    b_ru: npt.ArrayLike,
    b_c: npt.ArrayLike,
    r: npt.ArrayLike,
    u: npt.ArrayLike,
    c: npt.ArrayLike,
    d_h: npt.ArrayLike,
    name: str | None = None,
) -> GRUBlockCellGradOutputs:
    """Gradient of one GRUBlockCell step; d_c_bar and d_r_bar_u_bar are gradients of the pre-activations.

    Args:
        x: [B, I], float32.
        h_prev: [B, H], float32.
        w_ru: [I+H, 2*H], float32.
        w_c: [I+H, H], float32.
        b_ru: [2*H], float32.
        b_c: [H], float32.
        r: [B, H], float32.
        u: [B, H], float32.
        c: [B, H], float32.
        d_h: [B, H], float32.
        name: stands for the node in error messages.

    Returns:
        d_x [B, I], float32; d_h_prev [B, H], float32; d_c_bar [B, H], float32; d_r_bar_u_bar [B, 2*H],
        float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """
    outputs = eager.call(
        "GRUBlockCellGrad",
        {
            "x": x,
            "h_prev": h_prev,
            "w_ru": w_ru,
            "w_c": w_c,
            "b_ru": b_ru,
            "b_c": b_c,
            "r": r,
            "u": u,
            "c": c,
            "d_h": d_h,
        },
        {},
        name,
    )
    return GRUBlockCellGradOutputs(**outputs)
