"""Gradients of operators that take elements elsewhere: repeat them, pad them, turn them round, choose some."""

from __future__ import annotations

import functools
import operator

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr
from lstm_lower.passes.formulas.rows import add_rows, reshape_to
from lstm_lower.passes.formulas.sizes import Size, entries, from_end, up_to, wide
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    again,
    differentiates,
    reshaped_like,
    shape_of,
    summed,
    widened,
)


def from_places(op: std.Standard, b: Builder, dys: Cotangents, *, zeros: bool = False) -> Expr:
    """The gradient by numbers: where the operator takes the elements' numbers to, there it takes the elements.

    It serves every operator whose results are elements of its first operand, in all its forms; `zeros` says that there
    may be zeros among them.
    """
    x = b.operand(op)
    size = b.op(std.Size, x).reshape(1)
    numbers = up_to(b, size)
    numbers = reshape_to(numbers - size if zeros else numbers, shape_of(x))
    taken = again(op, b, [numbers, *op.node.inputs[1:]])
    # A zero that is no element's number becomes that behind all, which is lost.
    taken = taken + size if zeros else taken
    total = add_rows(widened(dys[0]).reshape(-1, 1), taken.reshape(-1), size)
    return reshaped_like(total.cast(x.dtype), x)


def around(x: Expr, axis: Size) -> list[Size]:
    """The number of elements before an axis, along it and behind it: three sizes for any rank.

    Args:
        x: a value.
        axis: the axis, maybe only known at run time and counted from behind.
    """
    b, shape = x.builder, x.shape
    if isinstance(axis, int) and shape is not None:
        axis %= len(shape)
        parts = [[x.size(i) for i in axes] for axes in (range(axis), range(axis + 1, len(shape)))]
        before, behind = (functools.reduce(operator.mul, sizes, 1) for sizes in parts)
        return [before, x.size(axis), behind]
    sizes = x.sizes()
    at = from_end(axis, sizes.sizes())
    ends = [sizes.slice(0, at, axis=0), sizes.slice(at + 1, END, axis=0)]
    # A product of no sizes is refused by some runtimes.
    products = [b.op(std.ReduceProd, b.concat([b.ints(1), part], 0), keepdims=1) for part in ends]
    return [products[0], sizes.slice(at, at + 1, axis=0), products[1]]


@differentiates(std.Compress)
def _compress(op: std.Compress, b: Builder, dys: Cotangents) -> Gradients:
    return from_places(op, b, dys)


@differentiates(std.CenterCropPad)
def _center_crop_pad(op: std.CenterCropPad, b: Builder, dys: Cotangents) -> Gradients:
    return from_places(op, b, dys, zeros=True)


@differentiates(std.Tile)
def _tile(op: std.Tile, b: Builder, dys: Cotangents) -> Gradients:
    """The sum over the repetitions, each an axis before the one that is repeated."""
    rank, x = op.known_rank(), b.operand(op)
    repeats = entries(b.operand(op, 1)) or [
        wide(b.operand(op, 1)).slice(axis, axis + 1, axis=0) for axis in range(rank)
    ]
    sizes = b.sizes([size for axis in range(rank) for size in (repeats[axis], x.size(axis))])
    return reshaped_like(summed(reshape_to(dys[0], sizes), range(0, 2 * rank, 2)), x)


@differentiates(std.Trilu)
def _trilu(op: std.Trilu, b: Builder, dys: Cotangents) -> Gradients:
    return _again(op, b, dys)


@differentiates(std.ReverseSequence)
def _reverse_sequence(op: std.ReverseSequence, b: Builder, dys: Cotangents) -> Gradients:
    """Turned round twice, all is where it was."""
    return _again(op, b, dys)


def _again(op: std.Standard, b: Builder, dys: Cotangents) -> Expr:
    """The operator on its result's gradient."""
    return again(op, b, [dys[0], *op.node.inputs[1:]])


@differentiates(std.DepthToSpace)
def _depth_to_space(op: std.DepthToSpace, b: Builder, dys: Cotangents) -> Gradients:
    """SpaceToDepth, whose channels are ordered as those of mode DCR: before opset 28 it has no other."""
    block = op.blocksize
    dx = b.op(std.SpaceToDepth, dys[0], blocksize=block)
    if op.mode == "CRD":
        dx = _channels_swapped(dx, block * block, op, b)
    return reshaped_like(dx, b.operand(op))


@differentiates(std.SpaceToDepth)
def _space_to_depth(op: std.SpaceToDepth, b: Builder, dys: Cotangents) -> Gradients:
    return b.op(std.DepthToSpace, dys[0], blocksize=op.blocksize, mode=op.mode)


def _channels_swapped(x: Expr, blocks: int, op: std.Standard, b: Builder) -> Expr:
    """Channels counted by block and place as channels counted by place and block."""
    sizes = [x.size(axis) for axis in range(4)]
    channels = b.output(op).size(1)
    apart = reshape_to(x, b.sizes([sizes[0], blocks, channels, *sizes[2:]]))
    return reshape_to(apart.transpose(0, 2, 1, 3, 4), b.sizes(sizes))


@differentiates(std.Pad)
def _pad(op: std.Pad, b: Builder, dys: Cotangents) -> Gradients:
    """What is not padding; of what mirrors or repeats elements, sums by their numbers."""
    if op.mode != "constant":
        return from_places(op, b, dys)
    widths, axes, value = b.operand(op, 1), b.optional(op, 3), b.optional(op, 2)
    dx = dvalue = None
    if dys.needs(0):
        zero = None if axes is None else b.constant(0, dys[0].dtype)
        dx = reshaped_like(b.op(std.Pad, dys[0], -widths, zero, *([] if axes is None else [axes])), b.operand(op))
    if value is not None and dys.needs(2):
        padding = [b.constant(1, dys[0].dtype), *([] if axes is None else [axes])]
        outside = b.op(std.Pad, b.zeros_like(b.operand(op)), widths, *padding)
        total = b.op(std.ReduceSum, widened(dys[0] * outside), keepdims=0)
        dvalue = reshaped_like(total.cast(value.dtype), value)
    return dx, None, dvalue
