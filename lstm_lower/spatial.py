"""Windows that slide over an image: the axes of TensorFlow's convolutions and poolings, and the sizes they imply."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from lstm_lower import dims
from lstm_lower.opdef import Call, OpDef, OperandDeclaration

# Rank -> symbols of the image's sizes, of the filter's, and of the numbers of windows.
SYMBOLS = {4: ("HW", "RS", "PQ"), 5: ("DHW", "ARS", "OPQ")}

_CHANNELS_FIRST = {
    " ".join(last): dims.parse_shape(" ".join([last[0], last[-1], *last[1:-1]]))
    for last in ("NHWC", "NPQC", "NPQK", "NDHWC", "NOPQC", "NOPQK")
}

_COUNTS = {4: "four", 5: "five", 8: "eight", 10: "ten"}


@dataclasses.dataclass(frozen=True)
class SpatialAxis:
    """How a window slides along one axis.

    Attributes:
        kernel: elements of the window: a number, or a tensor of one where a rule meets one of run time.
        stride: distance of neighbouring windows.
        dilation: distance of neighbouring elements of a window.
        padding: `SAME`, `VALID` or `EXPLICIT`; ONNX also has `SAME_LOWER`, where what is odd stands before.
        explicit: padding before and after where it is explicit, else zeros.
    """

    kernel: Any
    stride: int
    dilation: int
    padding: str
    explicit: tuple[int, int]

    @property
    def extent(self) -> Any:
        """How many elements lie between the first one of a window and the last, both included."""
        return (self.kernel - 1) * self.dilation + 1

    def output_size(self, size: int) -> int:
        """The number of windows on an axis of a given size."""
        if self.padding == "SAME":
            return -(-size // self.stride)
        windows: int = (size + sum(self.explicit) - self.extent) // self.stride + 1
        return windows


class SpatialOp(OpDef, abstract=True):
    """An op on images, under the attribute `data_format` where it has one, else with their channels last."""

    @classmethod
    def placement(cls, call: Call) -> dict[str, Any]:
        """Attributes that place windows, and the values of operands that stand for some, where they are known."""
        values = {name: call.operands[name].value for name in cls.static_operands}
        constants = {name: value.reshape(-1).tolist() for name, value in values.items() if value is not None}
        return {"data_format": "NHWC", **call.attributes, **constants}

    @classmethod
    def shape_spec(cls, operand: OperandDeclaration, attributes: Mapping[str, Any]) -> dims.ShapeSpec | None:
        """Images have their channels last or second."""
        if operand.spec is not None and attributes.get("data_format", "NHWC")[1] == "C":
            return _CHANNELS_FIRST.get(operand.spec.text, operand.spec)
        return operand.spec


def spatial_positions(data_format: str) -> tuple[int, ...]:
    """The positions of rows and columns in a shape, and before them that of a volume's depth."""
    return tuple(position for position, letter in enumerate(data_format) if letter not in "NC")


def spatial_axes(attributes: Mapping[str, Any], kernel: Sequence[int]) -> list[SpatialAxis]:
    """Rows and columns under an op's verified attributes.

    Args:
        attributes: `strides`, `padding`, `data_format`, and where the op has them `dilations`, `explicit_paddings`.
        kernel: rows and columns of the window.
    """
    axes, rank = [], len(attributes["data_format"])
    for size, position in zip(kernel, spatial_positions(attributes["data_format"]), strict=True):
        explicit = attributes.get("explicit_paddings") or [0] * (2 * rank)
        axes.append(
            SpatialAxis(
                size,
                attributes["strides"][position],
                attributes.get("dilations", [1] * rank)[position],
                attributes["padding"],
                (explicit[2 * position], explicit[2 * position + 1]),
            )
        )
    return axes


def window_axes(call: Call) -> list[SpatialAxis] | None:
    """How windows slide along each axis; `None` where the size of one is not known."""
    op: Any = call.op
    attributes = op.placement(call)
    data_format = attributes["data_format"]
    if attributes.get("strides") is None:
        return None
    if "ksize" in attributes:
        kernel = [attributes["ksize"][position] for position in spatial_positions(data_format)]
    else:
        kernel = [call.sizes.get(symbol) for symbol in SYMBOLS[len(data_format)][1]]
    stated = [size for size in kernel if isinstance(size, int)]
    return spatial_axes(attributes, stated) if len(stated) == len(kernel) else None


def check_windows(call: Call, *vectors: str) -> None:
    """Verifies what places windows.

    Args:
        call: the call; its attributes are bound.
        vectors: names of the attributes, or of operands, that hold a number for each axis.

    Raises:
        InvalidModelError, InvalidInputError: one does not fit.
    """
    op: Any = call.op
    given = op.placement(call)
    spatial, rank = spatial_positions(given["data_format"]), len(given["data_format"])
    for name in (name for name in vectors if name in given):
        value = given[name]
        fits = len(value) == rank and all(
            entry >= 1 if axis in spatial else entry == 1 for axis, entry in enumerate(value)
        )
        if not fits:
            raise call.error(
                f"attribute {name}", f"{_COUNTS[rank]} numbers above 0, that of batch and channels 1", value
            )
    explicit = call.attributes.get("explicit_paddings", [])
    if call.attributes["padding"] != "EXPLICIT":
        if explicit:
            raise call.error("attribute explicit_paddings", f"none with padding {call.attributes['padding']}", explicit)
        return
    fits = len(explicit) == 2 * rank and all(
        entry >= 0 if position // 2 in spatial else entry == 0 for position, entry in enumerate(explicit)
    )
    if not fits:
        raise call.error(
            "attribute explicit_paddings",
            f"{_COUNTS[2 * rank]} numbers of at least 0, those of batch and channels 0",
            explicit,
        )


def bind_sizes(call: Call, name: str, symbols: str) -> None:
    """Binds the sizes that an operand holds, where its value is known.

    Args:
        call: the call.
        name: the operand.
        symbols: a letter for each of its entries.

    Raises:
        InvalidModelError, InvalidInputError: a size is negative, or is another one by the other operands.
    """
    value = call.operands[name].value
    if value is None:
        return
    sizes = [int(entry) for entry in value]
    for symbol, size in zip(symbols, sizes, strict=True):
        known = call.sizes.get(symbol)
        if size < 0 or (isinstance(known, int) and known != size):
            what = f"sizes that fit the other operands ({symbol} = {'0 or more' if known is None else known})"
            raise call.error(name, what, sizes)
        call.sizes[symbol] = size


def check_output_sizes(call: Call, operand: str) -> None:
    """Verifies that an operand has as many rows and columns as there are windows, where all sizes are known.

    Args:
        call: the call; its dimension symbols are bound.
        operand: the operand with an entry for each window.

    Raises:
        InvalidModelError, InvalidInputError: it has more or fewer.
    """
    axes = window_axes(call)
    if axes is None:
        return
    images, _, counts = SYMBOLS[len(axes) + 2]
    names = ("slices", "rows", "columns")[-len(axes) :]
    for axis, image, windows, name in zip(axes, images, counts, names, strict=True):
        size, count = call.sizes.get(image), call.sizes.get(windows)
        if isinstance(size, int) and isinstance(count, int) and axis.output_size(size) != count:
            raise call.error(operand, f"{max(axis.output_size(size), 0)} {name} (for {size} of the image)", count)
