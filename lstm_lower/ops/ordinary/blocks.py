"""Definitions of TensorFlow's ops that exchange places in images with batch entries or channels.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, numbers, shape_of


class _Blocks(RawOp, abstract=True, block_shape="M"):
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


class SpaceToBatchND(_Blocks, paddings="M 2"):
    """Moves the positions within each block to the batch axis, after padding."""


class BatchToSpaceND(_Blocks, crops="M 2"):
    """Entries of the batch become the places of blocks, which are then cropped."""

    widths = "crops"


class SpaceToBatch(_Blocks, paddings="2 2"):
    """SpaceToBatchND for two axes and square blocks."""

    static_operands = ()


class BatchToSpace(_Blocks, crops="2 2"):
    """BatchToSpaceND for two axes and square blocks."""

    static_operands = ()
    widths = "crops"


class _Depth(RawOp, abstract=True, input="A B C D", data_format=("NHWC", "NCHW")):
    """Exchanges places in an image with channels.

    Attributes:
        widens: whether images become larger, with fewer channels.
    """

    widens: ClassVar[bool] = False

    @classmethod
    def verify(cls, call: Call) -> None:
        """Sizes that can be divided."""
        if call.attributes["block_size"] < 1:
            raise call.error("attribute block_size", "1 or more", f"{call.attributes['block_size']}")
        block, shape = call.attributes["block_size"], shape_of(call, "input")
        for letter, size in zip(call.attributes["data_format"], shape or (None,) * 4, strict=True):
            factor = {"N": 1, "C": block * block if cls.widens else 1}.get(letter, 1 if cls.widens else block)
            if isinstance(size, int) and size % factor:
                raise call.error("input", f"a size that {factor} divides along {letter}", f"{size}")


class SpaceToDepth(_Depth):
    """Moves the positions within each block to the channels."""


class DepthToSpace(_Depth):
    """Channels become the places of blocks."""

    widens = True
