"""Definitions of TensorFlow's ops that exchange places in images with batch entries or channels.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import (
    ALL,
    INDEX,
    Reshaped,
    numbers,
    result,
    shape_of,
)


class _Blocks(Reshaped, abstract=True):
    """Exchanges places along M axes with entries of the batch.

    Attributes:
        widths: the operand that says how much is added to or cut off either end.
    """

    static_operands: ClassVar[tuple[str, ...]] = ("block_shape",)
    widths = "paddings"

    @classmethod
    def blocks(cls, call: Call) -> list[int] | None:
        """The size of a block along each axis, where it is known."""
        if "block_size" not in call.attributes:
            return numbers(call, "block_shape")
        return [call.attributes["block_size"]] * 2

    @classmethod
    def verify(cls, call: Call) -> None:
        """Blocks of at least one place, and axes for all of them."""
        blocks, shape = cls.blocks(call), shape_of(call, "input")
        if blocks is not None and min(blocks, default=1) < 1:
            raise call.error("block_shape", "sizes of 1 or more", f"{blocks}")
        rows = call.sizes.get("M", 2)
        if blocks is not None and isinstance(rows, int) and rows != len(blocks):
            raise call.error(cls.widths, f"{len(blocks)} rows", f"{rows}")
        if shape is not None and blocks is not None and len(shape) <= len(blocks):
            raise call.error("input", f"rank {len(blocks) + 1} or more", f"rank {len(shape)}")
        if min(numbers(call, cls.widths) or [0]) < 0:
            raise call.error(cls.widths, "numbers of 0 or more", f"{numbers(call, cls.widths)}")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The rank stays; the rest follows when it is lowered."""
        shape, blocks = shape_of(call, "input"), cls.blocks(call)
        if shape is None or blocks is None:
            return result(call, None)
        return result(call, (None,) * (1 + len(blocks)) + tuple(shape[1 + len(blocks) :]))


class SpaceToBatchND(_Blocks):
    """Moves the positions within each block to the batch axis, after padding."""

    class Types:
        T = ALL
        Tblock_shape = INDEX
        Tpaddings = INDEX

    class Inputs:
        input = operand(None)
        block_shape = operand("M", "Tblock_shape")
        paddings = operand("M 2", "Tpaddings")


class BatchToSpaceND(_Blocks):
    """Entries of the batch become the places of blocks, which are then cropped."""

    widths = "crops"

    class Types:
        T = ALL
        Tblock_shape = INDEX
        Tcrops = INDEX

    class Inputs:
        input = operand(None)
        block_shape = operand("M", "Tblock_shape")
        crops = operand("M 2", "Tcrops")


class SpaceToBatch(_Blocks):
    """SpaceToBatchND for two axes and square blocks."""

    static_operands = ()

    class Types:
        T = ALL
        Tpaddings = INDEX

    class Inputs:
        input = operand(None)
        paddings = operand("2 2", "Tpaddings")

    class Attrs:
        block_size = attr(int)


class BatchToSpace(_Blocks):
    """BatchToSpaceND for two axes and square blocks."""

    static_operands = ()
    widths = "crops"

    class Types:
        T = ALL
        Tidx = INDEX

    class Inputs:
        input = operand(None)
        crops = operand("2 2", "Tidx")

    class Attrs:
        block_size = attr(int)


class _Depth(Reshaped, abstract=True):
    """Exchanges places in an image with channels."""

    class Inputs:
        input = operand("A B C D")

    class Attrs:
        block_size = attr(int)
        data_format = attr(str, "NHWC", choices=("NHWC", "NCHW"))

    @classmethod
    def verify(cls, call: Call) -> None:
        """Sizes that can be divided."""
        if call.attributes["block_size"] < 1:
            raise call.error("attribute block_size", "1 or more", f"{call.attributes['block_size']}")
        cls.output_infos(call)

    @classmethod
    def exchanged(cls, call: Call, *, to_depth: bool) -> list[TensorInfo]:
        """The shape after the exchange.

        Raises:
            InvalidModelError, InvalidInputError: a size cannot be divided.
        """
        shape, block = shape_of(call, "input"), call.attributes["block_size"]
        if shape is None or len(shape) != 4:
            return result(call, (None,) * 4)
        sizes: list[Dim] = []
        for letter, size in zip(call.attributes["data_format"], shape, strict=True):
            factor = 1 if letter == "N" else block * block if letter == "C" else block
            grows = (letter == "C") == to_depth
            if not grows and isinstance(size, int) and size % factor:
                raise call.error("input", f"a size that {factor} divides along {letter}", f"{size}")
            sizes.append(size if factor == 1 else None if not isinstance(size, int) else _changed(size, factor, grows))
        return result(call, sizes)


def _changed(size: int, factor: int, grows: bool) -> int:
    return size * factor if grows else size // factor


class SpaceToDepth(_Depth):
    """Moves the positions within each block to the channels."""

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Smaller images, more channels."""
        return cls.exchanged(call, to_depth=True)


class DepthToSpace(_Depth):
    """Channels become the places of blocks."""

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Larger images, fewer channels."""
        return cls.exchanged(call, to_depth=False)
