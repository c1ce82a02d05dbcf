"""Packs and unpacks cuDNN's params buffer from and to the weights of Keras layers and PyTorch modules.

Neither framework is imported: weights are arrays (or whatever numpy can read), in the frameworks' own names and orders.

    packed = pack_keras([layer.get_weights()], "lstm")
    packed = pack_torch(module.state_dict(), "gru")
    unpack_torch(packed.params, packed.layout)

Gate orders: cuDNN and PyTorch lstm i, f, c, o and gru r, u, n; Keras lstm i, f, c, o and gru u, r, n (z, r, h in its
own letters). Keras' kernels are `[in, out]`, cuDNN's and PyTorch's matrices `[out, in]`. A Keras LSTM or SimpleRNN has
one bias where cuDNN has two: it goes into the recurrent one, as Keras' own packer does, and the sum comes back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lstm_lower.errors import InvalidInputError, requires
from lstm_lower.layouts import ParamsBlock, ParamsLayout, PseudoLayer

Array = np.ndarray[Any, Any]

# Where each of cuDNN's gates stands in a Keras kernel.
_KERAS_ORDER = {"lstm": (0, 1, 2, 3), "gru": (1, 0, 2), "rnn_relu": (0,), "rnn_tanh": (0,)}
_SUFFIXES = ("", "_reverse")


class PackedParams(NamedTuple):
    """A params buffer and its layout."""

    params: Array
    layout: ParamsLayout


def _fail(operand: str, what: str, got: object) -> InvalidInputError:
    return InvalidInputError(requires("weights", None, operand, what, got))


def _swap_gates(matrix: Array, rnn_mode: str) -> Array:
    """Reorders blocks of rows between Keras' gate order and cuDNN's; its own inverse."""
    order = _KERAS_ORDER[rnn_mode]
    return np.concatenate([np.split(matrix, len(order))[gate] for gate in order])


def _cut(params: Array, block: ParamsBlock) -> Array:
    return params[block.offset : block.end].reshape(block.shape)


def _fill(params: Array, block: ParamsBlock, value: Array, name: str) -> None:
    if value.shape != block.shape:
        raise _fail(name, f"shape {list(block.shape)}", f"shape {list(value.shape)}")
    params[block.offset : block.end] = value.ravel()


def _dtype(arrays: Sequence[Array]) -> np.dtype[Any]:
    return np.result_type(*arrays)


def pack_keras(cells: Sequence[Sequence[Any]], rnn_mode: str, *, bidirectional: bool = False) -> PackedParams:
    """Packs Keras weights.

    Args:
        cells: per pseudo-layer (layer by layer; forward, then backward, when bidirectional) what `get_weights()` of
            the LSTM, GRU (`reset_after=True`) or SimpleRNN layer returns: kernel `[in, G*N]`, recurrent kernel
            `[N, G*N]`, and unless `use_bias=False` the bias: `[G*N]`, for a GRU `[2, 3*N]`.
        rnn_mode: `lstm`, `gru`, `rnn_tanh`, `rnn_relu`.
        bidirectional: whether the cells come in pairs.

    Returns:
        The buffer, in the weights' dtype, and its layout.

    Raises:
        InvalidInputError: when counts or shapes do not fit together.
    """
    directions = 2 if bidirectional else 1
    if not cells or len(cells) % directions:
        raise _fail("cells", f"a positive multiple of {directions}", len(cells))
    arrays = [[np.asarray(weight) for weight in cell] for cell in cells]
    for index, cell in enumerate(arrays):
        if len(cell) not in (2, 3) or cell[0].ndim != 2 or cell[1].ndim != 2:
            got = [list(weight.shape) for weight in cell]
            raise _fail(f"cells[{index}]", "kernel [in, G*N], recurrent kernel [N, G*N] and perhaps a bias", got)
    kernel, recurrent = arrays[0][:2]
    layout = ParamsLayout(rnn_mode, len(cells) // directions, directions, kernel.shape[0], recurrent.shape[0])
    params = np.zeros(layout.size, _dtype([weight for cell in arrays for weight in cell]))
    for index, (row, (kernel, recurrent, *biases)) in enumerate(zip(layout.table, arrays, strict=True)):
        if kernel.shape != row.W.shape[::-1]:
            raise _fail(f"cells[{index}] kernel", f"shape {list(row.W.shape[::-1])}", f"shape {list(kernel.shape)}")
        _fill(params, row.W, _swap_gates(kernel.T, rnn_mode), f"cells[{index}] kernel")
        if recurrent.shape != row.R.shape[::-1]:
            what = f"shape {list(row.R.shape[::-1])}"
            raise _fail(f"cells[{index}] recurrent_kernel", what, f"shape {list(recurrent.shape)}")
        _fill(params, row.R, _swap_gates(recurrent.T, rnn_mode), f"cells[{index}] recurrent_kernel")
        if biases:
            _fill_keras_bias(params, row, biases[0], rnn_mode, f"cells[{index}] bias")
    return PackedParams(params, layout)


def _fill_keras_bias(params: Array, row: PseudoLayer, bias: Array, rnn_mode: str, name: str) -> None:
    if rnn_mode != "gru":
        _fill(params, row.bR, bias, name)
        return
    if bias.ndim != 2 or bias.shape[0] != 2:
        what = "shape [2, 3*N], that of reset_after=True (cuDNN resets after the recurrent product)"
        raise _fail(name, what, f"shape {list(bias.shape)}")
    for block, part in zip((row.bW, row.bR), bias, strict=True):
        _fill(params, block, _swap_gates(part, rnn_mode), name)


def unpack_keras(params: Any, layout: ParamsLayout, *, bias: bool = True, gradient: bool = False) -> list[list[Array]]:
    """Unpacks to Keras weights, the inverse of `pack_keras`.

    Args:
        params: the buffer `[size]`, or its gradient.
        layout: its layout; no projection and no skip_input, which Keras does not have.
        bias: whether the layers have one.
        gradient: the buffer holds gradients: those of cuDNN's two LSTM biases are equal, and either of them (not
            their sum) is that of Keras' one.

    Returns:
        Per pseudo-layer kernel, recurrent kernel and bias, ready for `set_weights()`.

    Raises:
        InvalidInputError: when the buffer does not fit, or Keras has no such layer.
    """
    params = np.asarray(params)
    layout.check_size(params.size)
    if layout.projects or layout.skip_input:
        raise _fail("layout", "no projection and no skip_input (Keras has neither)", "projection or skip_input")
    cells = []
    for row in layout.table:
        cell = [_swap_gates(_cut(params, block), layout.rnn_mode).T.copy() for block in (row.W, row.R)]
        if bias:
            b_w, b_r = (_swap_gates(_cut(params, block), layout.rnn_mode) for block in row.biases)
            if layout.rnn_mode == "gru":
                cell.append(np.stack((b_w, b_r)))
            else:
                cell.append(b_r if gradient else b_w + b_r)
        cells.append(cell)
    return cells


def _torch_names(row: PseudoLayer, prefix: str) -> dict[str, str]:
    end = f"l{row.layer}{_SUFFIXES[row.direction]}"
    names = {"W": "weight_ih", "R": "weight_hh", "P": "weight_hr", "bW": "bias_ih", "bR": "bias_hh"}
    return {block: f"{prefix}{name}_{end}" for block, name in names.items()}


def pack_torch(state: Mapping[str, Any], rnn_mode: str, *, prefix: str = "") -> PackedParams:
    """Packs the state dict of a PyTorch `nn.LSTM`, `nn.GRU` or `nn.RNN`.

    Args:
        state: name -> array or CPU tensor; layers, directions, biases and projection follow from the names.
        rnn_mode: `lstm`, `gru`, `rnn_tanh`, `rnn_relu`.
        prefix: the module's name in a larger state dict, for example `encoder.`.

    Returns:
        The buffer, in the weights' dtype, and its layout; missing biases are zeros.

    Raises:
        InvalidInputError: when a name is missing, strange, or a shape does not fit.
    """
    arrays = {name: np.asarray(value) for name, value in state.items() if name.startswith(prefix)}
    pattern = re.compile(re.escape(prefix) + r"(?:weight_(?:ih|hh|hr)|bias_(?:ih|hh))_l(\d+)(_reverse)?$")
    matches = {name: pattern.match(name) for name in arrays}
    strange = [name for name, match in matches.items() if match is None]
    if strange or not matches:
        raise _fail("state", f"names like {prefix}weight_ih_l0, {prefix}bias_hh_l1_reverse", strange or "none")
    layers = 1 + max(int(match[1]) for match in matches.values() if match)
    directions = 2 if any(match[2] for match in matches.values() if match) else 1
    first = {name: arrays.get(f"{prefix}weight_{name}_l0") for name in ("ih", "hh", "hr")}
    if first["ih"] is None or first["hh"] is None or first["ih"].ndim != 2 or first["hh"].ndim != 2:
        raise _fail("state", f"matrices {prefix}weight_ih_l0 and {prefix}weight_hh_l0", sorted(arrays))
    projection = first["hr"]
    layout = ParamsLayout(
        rnn_mode,
        layers,
        directions,
        input_size=first["ih"].shape[1],
        num_units=first["hh"].shape[1] if projection is None else projection.shape[1],
        num_proj=0 if projection is None else projection.shape[0],
    )
    params = np.zeros(layout.size, _dtype(list(arrays.values())))
    expected = set()
    for row in layout.table:
        names = _torch_names(row, prefix)
        for block in (*row.weights, *row.biases):
            name = names[block.name]
            expected.add(name)
            if name in arrays:
                _fill(params, block, arrays[name], name)
            elif not block.name.startswith("b"):
                raise _fail("state", f"a matrix {name}", "none")
    if not set(arrays) <= expected:
        raise _fail("state", "no other weights than those of its layers", sorted(set(arrays) - expected))
    return PackedParams(params, layout)


def unpack_torch(params: Any, layout: ParamsLayout, *, bias: bool = True, prefix: str = "") -> dict[str, Array]:
    """Unpacks to a PyTorch state dict, the inverse of `pack_torch`; gradients unpack the same way.

    Args:
        params: the buffer `[size]`, or its gradient.
        layout: its layout, without skip_input.
        bias: whether the module has biases.
        prefix: put before every name.

    Returns:
        name -> array.

    Raises:
        InvalidInputError: when the buffer does not fit, or PyTorch has no such module.
    """
    params = np.asarray(params)
    layout.check_size(params.size)
    if layout.skip_input:
        raise _fail("layout", "no skip_input (PyTorch does not have it)", "skip_input")
    state = {}
    for row in layout.table:
        names = _torch_names(row, prefix)
        for block in (*row.weights, *(row.biases if bias else ())):
            state[names[block.name]] = _cut(params, block).copy()
    return state
