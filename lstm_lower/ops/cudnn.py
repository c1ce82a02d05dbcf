"""Definitions of CudnnRNN, V2, V3 and their Backprop ops.

Symbols: T time steps, B batch, I input size, K pseudo-layers (layers times directions), H size of h, N units,
Y output size (directions times H).
Operands are time major except in the V3 ops under time_major=False, where the first two axes change places.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar

from lstm_lower import dims
from lstm_lower.layouts import DIRECTIONS, GATES, INPUT_MODES, ParamsLayout, resolve_skip_input
from lstm_lower.opdef import Call, OperandDeclaration, attr, operand
from lstm_lower.ops.block import BlockRecurrent

# Operands with a cell state: shaped like input_c for an lstm, not read by the other modes.
_CELLS = ("input_c", "output_c", "output_c_backprop", "input_c_backprop")


class CudnnSequence(BlockRecurrent, abstract=True):
    """Common to the six ops over whole sequences."""

    backward: ClassVar[bool] = False
    static_sizes = ("K", "I", "H", "N")

    class Types:
        T = ("bfloat16", "float16", "float32", "float64")

    class Inputs:
        input = operand("T B I")
        input_h = operand("K B H")
        input_c = operand("K B N")
        params = operand("S")

    class Attrs:
        rnn_mode = attr(str, "lstm", choices=tuple(GATES))
        input_mode = attr(str, "linear_input", choices=INPUT_MODES)
        direction = attr(str, "unidirectional", choices=tuple(DIRECTIONS))
        dropout = attr(float, 0.0)
        seed = attr(int, 0)
        seed2 = attr(int, 0)

    @classmethod
    def shape_spec(cls, operand: OperandDeclaration, attributes: Mapping[str, Any]) -> dims.ShapeSpec | None:
        """The shape of an operand, which mode, direction, projection and order of axes change."""
        if operand.spec is None:
            return None
        text = operand.spec.text
        lstm = attributes["rnn_mode"] == "lstm"
        if operand.name in _CELLS and not lstm:
            return {"input_c": dims.parse_shape("*C"), "input_c_backprop": dims.parse_shape("*C")}.get(
                operand.name, dims.parse_shape("") if not cls.backward else None
            )
        text = text.replace("Y", f"{DIRECTIONS[attributes['direction']]}*H")
        if not attributes.get("num_proj", 0):
            text = text.replace("N", "H")
        first, second, *rest = (*text.split(), "")
        if second == "B" and not attributes.get("time_major", True):
            text = " ".join([second, first, *rest])
        return dims.parse_shape(text)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Checks what the shapes alone do not say, and binds the sizes that follow."""
        if not 0 <= call.attributes["dropout"] <= 1:
            raise call.error("attribute dropout", "0 to 1", call.attributes["dropout"])
        _verify_projection(call)
        layers = call.sizes.get("K")
        directions = DIRECTIONS[call.attributes["direction"]]
        if isinstance(layers, int) and (layers == 0 or layers % directions):
            raise call.error("input_h", f"a positive multiple of {directions} pseudo-layers", layers)
        if call.sizes.get("T") == 0:
            raise call.error("input", "at least one time step", 0)
        _verify_lengths(call)
        layout = layout_of(call)
        size = call.sizes.get("S")
        if layout is not None and isinstance(size, int):
            layout.check_size(size)
        if layout is not None:
            call.sizes["S"] = layout.size


class _CudnnForward(CudnnSequence, abstract=True):
    class Outputs:
        output = operand("T B Y")
        output_h = operand("K B H")
        output_c = operand("K B N")
        reserve_space = operand("R")

    class Attrs(CudnnSequence.Attrs):
        is_training = attr(bool, True)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds R, the size of reserve_space."""
        super().verify(call)
        call.sizes["R"] = masks_size(call) if call.attributes["is_training"] else 0

    @classmethod
    def draws(cls, attributes: Mapping[str, Any]) -> bool:
        """Masks between layers are drawn by the forward ops; the backward ops read them."""
        return bool(attributes.get("dropout", 0.0) > 0 and attributes.get("is_training", True))


class CudnnRNN(_CudnnForward):
    """Multi-layer, perhaps bidirectional LSTM, GRU or simple RNN with one packed weight buffer, as cuDNN runs it."""


class CudnnRNNV2(_CudnnForward):
    """CudnnRNN with a further output for cuDNN's choice of algorithm, empty here."""

    class Outputs(_CudnnForward.Outputs):
        host_reserved = operand("0", "int8")


class CudnnRNNV3(CudnnRNNV2):
    """CudnnRNN over ragged sequences, with projection (lstm) and batch-major operands."""

    class Inputs(CudnnSequence.Inputs):
        sequence_lengths = operand("B", "int32", counts="T")

    class Attrs(_CudnnForward.Attrs):
        num_proj = attr(int, 0)
        time_major = attr(bool, True)


class _BackwardOperands:
    """Results of the forward op and their gradients."""

    output = operand("T B Y")
    output_h = operand("K B H")
    output_c = operand("K B N")
    output_backprop = operand("T B Y")
    output_h_backprop = operand("K B H")
    output_c_backprop = operand("K B N")
    reserve_space = operand(None)


class _CudnnBackward(CudnnSequence, abstract=True):
    backward = True

    class Outputs:
        input_backprop = operand("T B I")
        input_h_backprop = operand("K B H")
        input_c_backprop = operand("K B N")
        params_backprop = operand("S")

    @classmethod
    def verify(cls, call: Call) -> None:
        """Under dropout between layers, reserve_space must be the forward op's masks."""
        super().verify(call)
        needed = masks_size(call)
        shape = call.operands["reserve_space"].shape if "reserve_space" in call.operands else None
        if needed == 0 or shape is None or any(not isinstance(dim, int) for dim in shape):
            return
        found = prod(dim for dim in shape if isinstance(dim, int))
        if needed is not None and found != needed:
            what = (
                f"the {needed} scaled dropout masks [layers-1, T, B, D*H] of the forward op under dropout > 0 and "
                "several layers (a buffer that cuDNN filled cannot be read: lower the forward op in the same graph, "
                "or pass masks)"
            )
            raise call.error("reserve_space", what, f"{found} elements")


class CudnnRNNBackprop(_CudnnBackward):
    """Gradient of CudnnRNN: recomputes the forward pass; reads output only where that saves a recurrence."""

    forward = "CudnnRNN"

    class Inputs(_BackwardOperands, CudnnSequence.Inputs):
        """The forward op's operands come first."""


class CudnnRNNBackpropV2(_CudnnBackward):
    """Gradient of CudnnRNNV2, as CudnnRNNBackprop; host_reserved is not read."""

    forward = "CudnnRNNV2"

    class Inputs(CudnnRNNBackprop.Inputs):
        host_reserved = operand(None, "int8")


class CudnnRNNBackpropV3(_CudnnBackward):
    """Gradient of CudnnRNNV3, as CudnnRNNBackprop; gradients at padded steps are neither read nor other than 0."""

    forward = "CudnnRNNV3"

    class Inputs(_BackwardOperands, CudnnRNNV3.Inputs):
        host_reserved = operand(None, "int8")

    class Attrs(_CudnnBackward.Attrs):
        num_proj = attr(int, 0)
        time_major = attr(bool, True)


def layout_of(call: Call) -> ParamsLayout | None:
    """The layout of params; `None` while a size that it depends on is not known.

    Raises:
        InvalidModelError, InvalidInputError: the sizes contradict each other.
    """
    attributes = call.attributes
    num_proj = attributes.get("num_proj", 0)
    layers, width, hidden = call.sizes.get("K"), call.sizes.get("I"), call.sizes.get("H")
    units = call.sizes.get("N") if num_proj else hidden
    if not (isinstance(layers, int) and isinstance(width, int) and isinstance(hidden, int) and isinstance(units, int)):
        return None
    directions = DIRECTIONS[attributes["direction"]]
    return ParamsLayout(
        rnn_mode=attributes["rnn_mode"],
        num_layers=layers // directions,
        directions=directions,
        input_size=width,
        num_units=units,
        num_proj=num_proj,
        skip_input=resolve_skip_input(attributes["input_mode"], width, hidden),
    )


def masks_size(call: Call) -> int | None:
    """Elements of the dropout masks between layers; 0 without any, `None` while a size is not known."""
    directions = DIRECTIONS[call.attributes["direction"]]
    layers = call.sizes.get("K")
    if call.attributes["dropout"] == 0 or layers == directions:
        return 0
    sizes = [call.sizes.get(symbol) for symbol in "TBH"]
    if not isinstance(layers, int) or any(not isinstance(size, int) for size in sizes):
        return None
    return (layers // directions - 1) * directions * prod(size for size in sizes if isinstance(size, int))


def _verify_projection(call: Call) -> None:
    num_proj, mode = call.attributes.get("num_proj", 0), call.attributes["rnn_mode"]
    if num_proj < 0:
        raise call.error("attribute num_proj", "0 or more", num_proj)
    if num_proj == 0:
        return
    if mode != "lstm":
        raise call.error("attribute num_proj", f"0 under rnn_mode {mode} (only lstm projects)", num_proj)
    hidden = call.sizes.get("H")
    if isinstance(hidden, int) and hidden != num_proj:
        raise call.error("input_h", f"num_proj = {num_proj} as its last dimension", hidden)
    call.sizes["H"] = num_proj


def _verify_lengths(call: Call) -> None:
    info = call.operands.get("sequence_lengths")
    if info is None or info.value is None or info.value.size == 0:
        return
    steps = call.sizes.get("T")
    limit = f"T = {steps}" if isinstance(steps, int) else "T"
    low, high = int(info.value.min()), int(info.value.max())
    if low < 0 or (isinstance(steps, int) and high > steps):
        raise call.error("sequence_lengths", f"0 <= length <= {limit}", low if low < 0 else high)
