"""Recurrent ops, one call at a time; written by `python -m lstm_lower.raw_ops_source`, do not edit."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = np.ndarray[Any, Any]

def __getattr__(name: str) -> Callable[..., Any]: ...

class BlockLSTMOutputs(NamedTuple):
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
        name: names the node in error messages.

    Returns:
        i [T, B, H], float16 or float32; cs [T, B, H], float16 or float32; f [T, B, H], float16 or
        float32; o [T, B, H], float16 or float32; ci [T, B, H], float16 or float32; co [T, B, H],
        float16 or float32; h [T, B, H], float16 or float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class BlockLSTMV2Outputs(NamedTuple):
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
        name: names the node in error messages.

    Returns:
        i [T, B, H], float16 or float32; cs [T, B, H], float16 or float32; f [T, B, H], float16 or
        float32; o [T, B, H], float16 or float32; ci [T, B, H], float16 or float32; co [T, B, H],
        float16 or float32; h [T, B, H], float16 or float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class BlockLSTMGradOutputs(NamedTuple):
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
        name: names the node in error messages.

    Returns:
        x_grad [T, B, I], float16 or float32; cs_prev_grad [B, H], float16 or float32; h_prev_grad [B,
        H], float16 or float32; w_grad [I+H, 4*H], float16 or float32; wci_grad [H], float16 or float32;
        wcf_grad [H], float16 or float32; wco_grad [H], float16 or float32; b_grad [4*H], float16 or
        float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class BlockLSTMGradV2Outputs(NamedTuple):
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
        name: names the node in error messages.

    Returns:
        x_grad [T, B, I], float16 or float32; cs_prev_grad [B, H], float16 or float32; h_prev_grad [B,
        H], float16 or float32; w_grad [I+H, 4*H], float16 or float32; wci_grad [H], float16 or float32;
        wcf_grad [H], float16 or float32; wco_grad [H], float16 or float32; b_grad [4*H], float16 or
        float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class LSTMBlockCellOutputs(NamedTuple):
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
        name: names the node in error messages.

    Returns:
        i [B, H], float16 or float32; cs [B, H], float16 or float32; f [B, H], float16 or float32; o [B,
        H], float16 or float32; ci [B, H], float16 or float32; co [B, H], float16 or float32; h [B, H],
        float16 or float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class LSTMBlockCellGradOutputs(NamedTuple):
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
        name: names the node in error messages.

    Returns:
        cs_prev_grad [B, H], float16 or float32; dicfo [B, 4*H], float16 or float32; wci_grad [H],
        float16 or float32; wcf_grad [H], float16 or float32; wco_grad [H], float16 or float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class GRUBlockCellOutputs(NamedTuple):
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
        name: names the node in error messages.

    Returns:
        r [B, H], float32; u [B, H], float32; c [B, H], float32; h [B, H], float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class GRUBlockCellGradOutputs(NamedTuple):
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
        name: names the node in error messages.

    Returns:
        d_x [B, I], float32; d_h_prev [B, H], float32; d_c_bar [B, H], float32; d_r_bar_u_bar [B, 2*H],
        float32.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class CudnnRNNOutputs(NamedTuple):
    output: Array
    output_h: Array
    output_c: Array
    reserve_space: Array

def CudnnRNN(
    *,
    input: npt.ArrayLike,
    input_h: npt.ArrayLike,
    input_c: npt.ArrayLike,
    params: npt.ArrayLike,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    is_training: bool = True,
    name: str | None = None,
) -> CudnnRNNOutputs:
    """Multi-layer, perhaps bidirectional LSTM, GRU or simple RNN with one packed weight buffer, as cuDNN runs it.

    Args:
        input: [T, B, I], bfloat16 or float16 or float32 or float64.
        input_h: [K, B, H], bfloat16 or float16 or float32 or float64.
        input_c: [K, B, N], bfloat16 or float16 or float32 or float64.
        params: [S], bfloat16 or float16 or float32 or float64.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        is_training: bool, default True.
        name: names the node in error messages.

    Returns:
        output [T, B, Y], bfloat16 or float16 or float32 or float64; output_h [K, B, H], bfloat16 or
        float16 or float32 or float64; output_c [K, B, N], bfloat16 or float16 or float32 or float64;
        reserve_space [R], bfloat16 or float16 or float32 or float64.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class CudnnRNNV2Outputs(NamedTuple):
    output: Array
    output_h: Array
    output_c: Array
    reserve_space: Array
    host_reserved: Array

def CudnnRNNV2(
    *,
    input: npt.ArrayLike,
    input_h: npt.ArrayLike,
    input_c: npt.ArrayLike,
    params: npt.ArrayLike,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    is_training: bool = True,
    name: str | None = None,
) -> CudnnRNNV2Outputs:
    """CudnnRNN with a further output for cuDNN's choice of algorithm, empty here.

    Args:
        input: [T, B, I], bfloat16 or float16 or float32 or float64.
        input_h: [K, B, H], bfloat16 or float16 or float32 or float64.
        input_c: [K, B, N], bfloat16 or float16 or float32 or float64.
        params: [S], bfloat16 or float16 or float32 or float64.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        is_training: bool, default True.
        name: names the node in error messages.

    Returns:
        output [T, B, Y], bfloat16 or float16 or float32 or float64; output_h [K, B, H], bfloat16 or
        float16 or float32 or float64; output_c [K, B, N], bfloat16 or float16 or float32 or float64;
        reserve_space [R], bfloat16 or float16 or float32 or float64; host_reserved [0], int8.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class CudnnRNNV3Outputs(NamedTuple):
    output: Array
    output_h: Array
    output_c: Array
    reserve_space: Array
    host_reserved: Array

def CudnnRNNV3(
    *,
    input: npt.ArrayLike,
    input_h: npt.ArrayLike,
    input_c: npt.ArrayLike,
    params: npt.ArrayLike,
    sequence_lengths: npt.ArrayLike,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    is_training: bool = True,
    num_proj: int = 0,
    time_major: bool = True,
    name: str | None = None,
) -> CudnnRNNV3Outputs:
    """CudnnRNN over ragged sequences, with projection (lstm) and batch-major operands.

    Args:
        input: [T, B, I], bfloat16 or float16 or float32 or float64.
        input_h: [K, B, H], bfloat16 or float16 or float32 or float64.
        input_c: [K, B, N], bfloat16 or float16 or float32 or float64.
        params: [S], bfloat16 or float16 or float32 or float64.
        sequence_lengths: [B], int32.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        is_training: bool, default True.
        num_proj: int, default 0.
        time_major: bool, default True.
        name: names the node in error messages.

    Returns:
        output [T, B, Y], bfloat16 or float16 or float32 or float64; output_h [K, B, H], bfloat16 or
        float16 or float32 or float64; output_c [K, B, N], bfloat16 or float16 or float32 or float64;
        reserve_space [R], bfloat16 or float16 or float32 or float64; host_reserved [0], int8.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class CudnnRNNBackpropOutputs(NamedTuple):
    input_backprop: Array
    input_h_backprop: Array
    input_c_backprop: Array
    params_backprop: Array

def CudnnRNNBackprop(
    *,
    input: npt.ArrayLike,
    input_h: npt.ArrayLike,
    input_c: npt.ArrayLike,
    params: npt.ArrayLike,
    output: npt.ArrayLike,
    output_h: npt.ArrayLike,
    output_c: npt.ArrayLike,
    output_backprop: npt.ArrayLike,
    output_h_backprop: npt.ArrayLike,
    output_c_backprop: npt.ArrayLike,
    reserve_space: npt.ArrayLike,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> CudnnRNNBackpropOutputs:
    """Gradient of CudnnRNN: recomputes the forward pass; reads output only where that saves a recurrence.

    Args:
        input: [T, B, I], bfloat16 or float16 or float32 or float64.
        input_h: [K, B, H], bfloat16 or float16 or float32 or float64.
        input_c: [K, B, N], bfloat16 or float16 or float32 or float64.
        params: [S], bfloat16 or float16 or float32 or float64.
        output: [T, B, Y], bfloat16 or float16 or float32 or float64.
        output_h: [K, B, H], bfloat16 or float16 or float32 or float64.
        output_c: [K, B, N], bfloat16 or float16 or float32 or float64.
        output_backprop: [T, B, Y], bfloat16 or float16 or float32 or float64.
        output_h_backprop: [K, B, H], bfloat16 or float16 or float32 or float64.
        output_c_backprop: [K, B, N], bfloat16 or float16 or float32 or float64.
        reserve_space: any shape, bfloat16 or float16 or float32 or float64.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        name: names the node in error messages.

    Returns:
        input_backprop [T, B, I], bfloat16 or float16 or float32 or float64; input_h_backprop [K, B, H],
        bfloat16 or float16 or float32 or float64; input_c_backprop [K, B, N], bfloat16 or float16 or
        float32 or float64; params_backprop [S], bfloat16 or float16 or float32 or float64.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class CudnnRNNBackpropV2Outputs(NamedTuple):
    input_backprop: Array
    input_h_backprop: Array
    input_c_backprop: Array
    params_backprop: Array

def CudnnRNNBackpropV2(
    *,
    input: npt.ArrayLike,
    input_h: npt.ArrayLike,
    input_c: npt.ArrayLike,
    params: npt.ArrayLike,
    output: npt.ArrayLike,
    output_h: npt.ArrayLike,
    output_c: npt.ArrayLike,
    output_backprop: npt.ArrayLike,
    output_h_backprop: npt.ArrayLike,
    output_c_backprop: npt.ArrayLike,
    reserve_space: npt.ArrayLike,
    host_reserved: npt.ArrayLike,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> CudnnRNNBackpropV2Outputs:
    """Gradient of CudnnRNNV2, as CudnnRNNBackprop; host_reserved is not read.

    Args:
        input: [T, B, I], bfloat16 or float16 or float32 or float64.
        input_h: [K, B, H], bfloat16 or float16 or float32 or float64.
        input_c: [K, B, N], bfloat16 or float16 or float32 or float64.
        params: [S], bfloat16 or float16 or float32 or float64.
        output: [T, B, Y], bfloat16 or float16 or float32 or float64.
        output_h: [K, B, H], bfloat16 or float16 or float32 or float64.
        output_c: [K, B, N], bfloat16 or float16 or float32 or float64.
        output_backprop: [T, B, Y], bfloat16 or float16 or float32 or float64.
        output_h_backprop: [K, B, H], bfloat16 or float16 or float32 or float64.
        output_c_backprop: [K, B, N], bfloat16 or float16 or float32 or float64.
        reserve_space: any shape, bfloat16 or float16 or float32 or float64.
        host_reserved: any shape, int8.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        name: names the node in error messages.

    Returns:
        input_backprop [T, B, I], bfloat16 or float16 or float32 or float64; input_h_backprop [K, B, H],
        bfloat16 or float16 or float32 or float64; input_c_backprop [K, B, N], bfloat16 or float16 or
        float32 or float64; params_backprop [S], bfloat16 or float16 or float32 or float64.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class CudnnRNNBackpropV3Outputs(NamedTuple):
    input_backprop: Array
    input_h_backprop: Array
    input_c_backprop: Array
    params_backprop: Array

def CudnnRNNBackpropV3(
    *,
    input: npt.ArrayLike,
    input_h: npt.ArrayLike,
    input_c: npt.ArrayLike,
    params: npt.ArrayLike,
    sequence_lengths: npt.ArrayLike,
    output: npt.ArrayLike,
    output_h: npt.ArrayLike,
    output_c: npt.ArrayLike,
    output_backprop: npt.ArrayLike,
    output_h_backprop: npt.ArrayLike,
    output_c_backprop: npt.ArrayLike,
    reserve_space: npt.ArrayLike,
    host_reserved: npt.ArrayLike,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    time_major: bool = True,
    name: str | None = None,
) -> CudnnRNNBackpropV3Outputs:
    """Gradient of CudnnRNNV3, as CudnnRNNBackprop; gradients at padded steps are neither read nor other than 0.

    Args:
        input: [T, B, I], bfloat16 or float16 or float32 or float64.
        input_h: [K, B, H], bfloat16 or float16 or float32 or float64.
        input_c: [K, B, N], bfloat16 or float16 or float32 or float64.
        params: [S], bfloat16 or float16 or float32 or float64.
        sequence_lengths: [B], int32.
        output: [T, B, Y], bfloat16 or float16 or float32 or float64.
        output_h: [K, B, H], bfloat16 or float16 or float32 or float64.
        output_c: [K, B, N], bfloat16 or float16 or float32 or float64.
        output_backprop: [T, B, Y], bfloat16 or float16 or float32 or float64.
        output_h_backprop: [K, B, H], bfloat16 or float16 or float32 or float64.
        output_c_backprop: [K, B, N], bfloat16 or float16 or float32 or float64.
        reserve_space: any shape, bfloat16 or float16 or float32 or float64.
        host_reserved: any shape, int8.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        num_proj: int, default 0.
        time_major: bool, default True.
        name: names the node in error messages.

    Returns:
        input_backprop [T, B, I], bfloat16 or float16 or float32 or float64; input_h_backprop [K, B, H],
        bfloat16 or float16 or float32 or float64; input_c_backprop [K, B, N], bfloat16 or float16 or
        float32 or float64; params_backprop [S], bfloat16 or float16 or float32 or float64.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

def CudnnRNNParamsSize(
    *,
    num_layers: npt.ArrayLike,
    num_units: npt.ArrayLike,
    input_size: npt.ArrayLike,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    T: npt.DTypeLike = "float32",
    S: npt.DTypeLike = "int32",
    name: str | None = None,
) -> Array:
    """Number of elements of the params buffer.

    Args:
        num_layers: [], int32.
        num_units: [], int32.
        input_size: [], int32.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        num_proj: int, default 0.
        T: npt.DTypeLike, one of bfloat16, float16, float32, float64, default "float32".
        S: npt.DTypeLike, one of int32, int64, default "int32".
        name: names the node in error messages.

    Returns:
        params_size, [1], int32 or int64.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class CudnnRNNParamsToCanonicalOutputs(NamedTuple):
    weights: list[Array]
    biases: list[Array]

def CudnnRNNParamsToCanonical(
    *,
    num_layers: npt.ArrayLike,
    num_units: npt.ArrayLike,
    input_size: npt.ArrayLike,
    params: npt.ArrayLike,
    num_params: int,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> CudnnRNNParamsToCanonicalOutputs:
    """Splits the params buffer into one matrix and one bias per gate, layer and direction.

    Args:
        num_layers: [], int32.
        num_units: [], int32.
        input_size: [], int32.
        params: [S], bfloat16 or float16 or float32 or float64.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        num_params: int.
        name: names the node in error messages.

    Returns:
        weights list of any shape, bfloat16 or float16 or float32 or float64; biases list of any shape,
        bfloat16 or float16 or float32 or float64.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

class CudnnRNNParamsToCanonicalV2Outputs(NamedTuple):
    weights: list[Array]
    biases: list[Array]

def CudnnRNNParamsToCanonicalV2(
    *,
    num_layers: npt.ArrayLike,
    num_units: npt.ArrayLike,
    input_size: npt.ArrayLike,
    params: npt.ArrayLike,
    num_params_weights: int,
    num_params_biases: int,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    name: str | None = None,
) -> CudnnRNNParamsToCanonicalV2Outputs:
    """CudnnRNNParamsToCanonical with projection matrices, so that there may be more matrices than biases.

    Args:
        num_layers: [], int32.
        num_units: [], int32.
        input_size: [], int32.
        params: [S], bfloat16 or float16 or float32 or float64.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        num_params_weights: int.
        num_params_biases: int.
        num_proj: int, default 0.
        name: names the node in error messages.

    Returns:
        weights list of any shape, bfloat16 or float16 or float32 or float64; biases list of any shape,
        bfloat16 or float16 or float32 or float64.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

def CudnnRNNCanonicalToParams(
    *,
    num_layers: npt.ArrayLike,
    num_units: npt.ArrayLike,
    input_size: npt.ArrayLike,
    weights: Sequence[npt.ArrayLike],
    biases: Sequence[npt.ArrayLike],
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> Array:
    """Packs one matrix and one bias per gate, layer and direction into the params buffer.

    Args:
        num_layers: [], int32.
        num_units: [], int32.
        input_size: [], int32.
        weights: list of any shape, bfloat16 or float16 or float32 or float64.
        biases: list of any shape, bfloat16 or float16 or float32 or float64.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        name: names the node in error messages.

    Returns:
        params, [S], bfloat16 or float16 or float32 or float64.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """

def CudnnRNNCanonicalToParamsV2(
    *,
    num_layers: npt.ArrayLike,
    num_units: npt.ArrayLike,
    input_size: npt.ArrayLike,
    weights: Sequence[npt.ArrayLike],
    biases: Sequence[npt.ArrayLike],
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    name: str | None = None,
) -> Array:
    """CudnnRNNCanonicalToParams with projection matrices.

    Args:
        num_layers: [], int32.
        num_units: [], int32.
        input_size: [], int32.
        weights: list of any shape, bfloat16 or float16 or float32 or float64.
        biases: list of any shape, bfloat16 or float16 or float32 or float64.
        rnn_mode: str, one of 'lstm', 'gru', 'rnn_relu', 'rnn_tanh', default "lstm".
        input_mode: str, one of 'linear_input', 'skip_input', 'auto_select', default "linear_input".
        direction: str, one of 'unidirectional', 'bidirectional', default "unidirectional".
        dropout: float, default 0.0.
        seed: int, default 0.
        seed2: int, default 0.
        num_proj: int, default 0.
        name: names the node in error messages.

    Returns:
        params, [S], bfloat16 or float16 or float32 or float64.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
    """
