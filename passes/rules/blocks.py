"""Lowering of the ops that exchange places in images with batch entries or channels: a Reshape, Transpose, Reshape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, numbers, shape_of
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import INT64, reshape_to
from lstm_lower.passes.formulas.sizes import Size, divided, entries
from lstm_lower.passes.rules.moving import permuted
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


def _exchanged(x: Expr, split: Sequence[Size], order: list[int], sizes: Sequence[Size]) -> Expr:
    b = x.builder
    return reshape_to(permuted(reshape_to(x, b.sizes(split)), order), b.sizes(sizes))


def _blocks(n: Node) -> list[int]:
    blocks: list[int] | None = n.op.blocks(n.call)
    return [int(size) for size in n.fixed("block_shape")] if blocks is None else blocks


def _widths(n: Node, count: int) -> list[Size]:
    """The numbers before and after, axis by axis."""
    flat = n.moved(n.op.widths).reshape(-1)
    return entries(flat) or [flat.cast(INT64).slice(i, i + 1, axis=0) for i in range(2 * count)]


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


class SpaceToBatch(_Blocks, paddings="2 2"):
    """SpaceToBatchND for two axes and square blocks."""

    static_operands = ()


@lowers(SpaceToBatchND, SpaceToBatch, repeatable=True)
def space_to_batch(n: Node, b: Builder) -> Expr:
    """Padded; places in a block before the batch."""
    x, blocks = computed(n.moved("input")), _blocks(n)
    rank, count = rank_of(n, "input", x), len(blocks)
    widths = _widths(n, count)
    around = [0] * (rank - 1 - count)
    if any(not isinstance(width, int) or width for width in widths):
        x = b.op(std.Pad, x, b.sizes([0, *widths[::2], *around, 0, *widths[1::2], *around]))
    sizes = [x.size(axis) for axis in range(rank)]
    batch, inner, rest = sizes[0], sizes[1 : count + 1], sizes[count + 1 :]
    smaller = [divided(size, block) for size, block in zip(inner, blocks, strict=True)]
    split: list[Size] = [batch]
    for size, block in zip(smaller, blocks, strict=True):
        split += [size, block]
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count + 1, 2), *range(2 * count + 1, rank + count)]
    return _exchanged(x, [*split, *rest], order, [batch * math.prod(blocks), *smaller, *rest])


class BatchToSpaceND(_Blocks, crops="M 2"):
    """Entries of the batch become the places of blocks, which are then cropped."""

    widths = "crops"


class BatchToSpace(_Blocks, crops="2 2"):
    """BatchToSpaceND for two axes and square blocks."""

    static_operands = ()
    widths = "crops"


@lowers(BatchToSpaceND, BatchToSpace, repeatable=True)
def batch_to_space(n: Node, _: Builder) -> Expr:
    """Places in a block behind those of the blocks; cropped."""
    x, blocks = n.moved("input"), _blocks(n)
    rank, count = rank_of(n, "input", x), len(blocks)
    sizes = [x.size(axis) for axis in range(rank)]
    batch, inner, rest = divided(sizes[0], math.prod(blocks)), sizes[1 : count + 1], sizes[count + 1 :]
    larger = [size * block for size, block in zip(inner, blocks, strict=True)]
    order = [count]
    for axis in range(count):
        order += [count + 1 + axis, axis]
    order += range(2 * count + 1, rank + count)
    x = _exchanged(x, [*blocks, batch, *inner, *rest], order, [batch, *larger, *rest])
    widths = _widths(n, count)
    for axis, (size, before, after) in enumerate(zip(larger, widths[::2], widths[1::2], strict=True), start=1):
        if not (isinstance(before, int) and isinstance(after, int) and before == after == 0):
            x = x.slice(before, size - after, axis=axis)
    return x


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


@lowers(SpaceToDepth, DepthToSpace, repeatable=True)
def depth(n: Node, _: Builder) -> Expr:
    """Channels are counted block by block."""
    x, block, last = n.moved("input"), int(n.block_size), n.data_format == "NHWC"
    sizes = [x.size(axis) for axis in range(4)]
    batch, height, width, channels = sizes if last else [sizes[0], sizes[2], sizes[3], sizes[1]]
    if n.op is SpaceToDepth:
        height, width, most = divided(height, block), divided(width, block), channels * (block * block)
        tall: list[Size] = [height, block, width, block]
        split = [batch, *tall, channels] if last else [batch, channels, *tall]
        order = [0, 1, 3, 2, 4, 5] if last else [0, 3, 5, 1, 2, 4]
        found = [height, width]
    else:
        most = divided(channels, block * block)
        split = [batch, height, width, block, block, most] if last else [batch, block, block, most, height, width]
        order = [0, 1, 3, 2, 4, 5] if last else [0, 3, 4, 1, 5, 2]
        found = [height * block, width * block]
    return _exchanged(x, split, order, [batch, *found, most] if last else [batch, most, *found])
