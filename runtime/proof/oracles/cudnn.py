"""Float64 oracles of CudnnRNN, V2, V3 and of their Backprop ops.

TensorFlow leaves some of it open; as everywhere in this project: lengths 0 pass the state through, `time_major=False`
transposes the states too, `output_c` is a scalar 0 and `input_c_backprop` zeros without a cell state, and under
dropout between layers `reserve_space` holds the scaled masks, flat, in the order layer boundary, time, batch,
direction * units (empty otherwise). `host_reserved` is empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError, requires
from lstm_lower.layouts import DIRECTIONS, ParamsLayout, resolve_skip_input
from lstm_lower.runtime.proof.oracles.cudnn_cells import Array
from lstm_lower.runtime.proof.oracles.cudnn_network import Network
from lstm_lower.runtime.proof.oracles.registry import F, Oracle, oracle

Operand = Any
Outputs = dict[str, np.ndarray[Any, Any]]


class _Call:
    """Operands of one call in float64 and time-major order, and the network that they describe."""

    def __init__(
        self,
        *,
        input: Operand,
        input_h: Operand,
        input_c: Operand,
        params: Operand,
        sequence_lengths: Operand = None,
        rnn_mode: str,
        input_mode: str,
        direction: str,
        num_proj: int = 0,
        time_major: bool = True,
    ) -> None:
        self.time_major = time_major
        self.lstm = rnn_mode == "lstm"
        self.x = self.major(input)
        self.h = self.major(input_h)
        steps, batch, input_size = self.x.shape
        num_proj = num_proj if self.lstm else 0
        self.c_shape = np.shape(input_c)
        self.c = self.major(input_c) if self.lstm else np.zeros_like(self.h)
        directions = DIRECTIONS[direction]
        self.layout = ParamsLayout(
            rnn_mode=rnn_mode,
            num_layers=self.h.shape[0] // directions,
            directions=directions,
            input_size=input_size,
            num_units=self.c.shape[-1],
            num_proj=num_proj,
            skip_input=resolve_skip_input(input_mode, input_size, self.h.shape[-1]),
        )
        self.params = np.asarray(params, np.float64)
        self.layout.check_size(self.params.size)
        self.lengths = (
            np.full(batch, steps) if sequence_lengths is None else np.asarray(sequence_lengths).astype(np.int64)
        )

    def major(self, value: Operand) -> Array:
        """Float64, with the time (or pseudo-layer) axis first; its own inverse."""
        array = np.asarray(value, np.float64)
        return array if self.time_major else array.swapaxes(0, 1)

    def mask_shape(self) -> tuple[int, int, int, int]:
        """`[L-1, T, B, D*H]`."""
        return (self.layout.num_layers - 1, *self.x.shape[:2], self.layout.output_size)

    def network(self, masks: Array | None) -> Network:
        return Network(self.layout, self.lengths, masks)

    def no_cell(self, value: Array) -> np.ndarray[Any, Any]:
        return self.major(value) if self.lstm else np.zeros(())


def _forward(call: _Call, dropout: float, seed: int, seed2: int, is_training: bool, masks: Operand) -> Outputs:
    drops = is_training and dropout > 0 and call.layout.num_layers > 1
    scaled = None
    if drops and masks is None:
        keep = np.random.default_rng([abs(seed), abs(seed2)]).random(call.mask_shape()) >= dropout
        scaled = keep / (1 - dropout) if dropout < 1 else np.zeros(call.mask_shape())
    elif drops:
        scaled = np.asarray(masks, np.float64).reshape(call.mask_shape())
    network = call.network(scaled)
    output, h, c, _ = network.forward(call.x, call.h, call.c, network.weights(call.params))
    return {
        "output": call.major(output),
        "output_h": call.major(h),
        "output_c": call.no_cell(c),
        "reserve_space": np.zeros(0) if scaled is None else scaled.ravel(),
    }


def _backward(call: _Call, dropout: float, reserve_space: Operand, dy: Operand, dh: Operand, dc: Operand) -> Outputs:
    masks = None
    if dropout > 0 and call.layout.num_layers > 1:
        masks = np.asarray(reserve_space, np.float64)
        if masks.size != np.prod(call.mask_shape()):
            what = f"the dropout masks of the forward pass, {np.prod(call.mask_shape())} elements"
            raise InvalidInputError(requires("CudnnRNNBackprop", None, "reserve_space", what, f"{masks.size} elements"))
        masks = masks.reshape(call.mask_shape())
    network = call.network(masks)
    weights = network.weights(call.params)
    *_, traces = network.forward(call.x, call.h, call.c, weights)
    dc_final = call.major(dc) if call.lstm else np.zeros_like(call.c)
    dx, dh0, dc0, dparams = network.backward(call.major(dy), call.major(dh), dc_final, weights, traces)
    return {
        "input_backprop": call.major(dx),
        "input_h_backprop": call.major(dh0),
        "input_c_backprop": call.major(dc0) if call.lstm else np.zeros(call.c_shape),
        "params_backprop": dparams,
    }


_EMPTY = np.zeros(0, np.int8)


@oracle("CudnnRNN")
def cudnn_rnn(
    *,
    input: Operand,
    input_h: Operand,
    input_c: Operand,
    params: Operand,
    sequence_lengths: Operand = None,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    is_training: bool = True,
    time_major: bool = True,
    masks: Operand = None,
) -> Outputs:
    """CudnnRNN, with the operands and attributes that V3 adds.

    Args:
        input: `[T, B, I]`.
        input_h: `[L*D, B, N]`.
        input_c: `[L*D, B, N]`; any shape without a cell state.
        params: the packed buffer, see `lstm_lower.layouts`.
        sequence_lengths: `[B]`; every sequence has all steps without it.
        rnn_mode: `lstm`, `gru`, `rnn_relu`, `rnn_tanh`.
        input_mode: `linear_input`, `skip_input`, `auto_select`.
        direction: `unidirectional`, `bidirectional`.
        dropout: probability of zeroing an element between two layers.
        seed: first seed of the masks.
        seed2: second seed of the masks.
        num_proj: size of the projected h; 0 projects nothing.
        is_training: without it there is no dropout.
        time_major: whether the time axis comes first, not second.
        masks: scaled masks to use in place of drawn ones; not an operand of the op.

    Returns:
        output, output_h, output_c, reserve_space.
    """
    call = _Call(
        input=input, input_h=input_h, input_c=input_c, params=params, sequence_lengths=sequence_lengths,
        rnn_mode=rnn_mode, input_mode=input_mode, direction=direction, num_proj=num_proj, time_major=time_major,
    )  # fmt: skip
    return _forward(call, dropout, seed, seed2, is_training, masks)


def _with_signature_of(function: Oracle, *more: str) -> Callable[[F], F]:
    """States the keywords of a function that hands them on."""

    def state(wrapper: F) -> F:
        signature = inspect.signature(function)
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in more]
        wrapper.__dict__["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), *added])
        return wrapper

    return state


@oracle("CudnnRNNV2")
@_with_signature_of(cudnn_rnn)
def cudnn_rnn_v2(**operands: Any) -> Outputs:
    """CudnnRNNV2: as `cudnn_rnn`, with an empty host_reserved."""
    return {**cudnn_rnn(**operands), "host_reserved": _EMPTY}


@oracle("CudnnRNNV3")
@_with_signature_of(cudnn_rnn)
def cudnn_rnn_v3(**operands: Any) -> Outputs:
    """CudnnRNNV3: as `cudnn_rnn_v2`, with lengths `[B]`, a projection and batch-major operands."""
    return cudnn_rnn_v2(**operands)


@oracle("CudnnRNNBackprop")
def cudnn_rnn_backprop(
    *,
    input: Operand,
    input_h: Operand,
    input_c: Operand,
    params: Operand,
    sequence_lengths: Operand = None,
    output: Operand,
    output_h: Operand,
    output_c: Operand,
    output_backprop: Operand,
    output_h_backprop: Operand,
    output_c_backprop: Operand,
    reserve_space: Operand,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    time_major: bool = True,
) -> Outputs:
    """CudnnRNNBackprop: reverse mode of `cudnn_rnn`, recomputed; output, output_h and output_c are not read.

    Nor are gradients of padded steps; theirs are 0.
    """
    call = _Call(
        input=input, input_h=input_h, input_c=input_c, params=params, sequence_lengths=sequence_lengths,
        rnn_mode=rnn_mode, input_mode=input_mode, direction=direction, num_proj=num_proj, time_major=time_major,
    )  # fmt: skip
    return _backward(call, dropout, reserve_space, output_backprop, output_h_backprop, output_c_backprop)


@oracle("CudnnRNNBackpropV2")
@_with_signature_of(cudnn_rnn_backprop, "host_reserved")
def cudnn_rnn_backprop_v2(*, host_reserved: Operand, **operands: Any) -> Outputs:
    """CudnnRNNBackpropV2: as `cudnn_rnn_backprop`; host_reserved is not read."""
    return cudnn_rnn_backprop(**operands)


@oracle("CudnnRNNBackpropV3")
@_with_signature_of(cudnn_rnn_backprop, "host_reserved")
def cudnn_rnn_backprop_v3(**operands: Any) -> Outputs:
    """CudnnRNNBackpropV3: reverse mode of `cudnn_rnn_v3`, as `cudnn_rnn_backprop_v2`."""
    return cudnn_rnn_backprop_v2(**operands)
