"""Lowering of the ops that move, place and count elements in gradient graphs.

Symbols: R rank of a result, N entries of a slice specification.
"""

from __future__ import annotations

import numpy as np

from lstm_lower.dims import starts
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call, TensorInfo
from lstm_lower.ops.raw import FLOATS, RawOp, check_count
from lstm_lower.passes.formulas.indices import from_front, is_never_negative, within
from lstm_lower.passes.formulas.rows import (
    INT64,
    flatten_rows,
    largest,
    padded,
    tail_of,
)
from lstm_lower.passes.formulas.sizes import Size, entries, up_to
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


class BroadcastGradientArgs(RawOp, s0="P", s1="Q"):
    """The axes over which the gradients of a broadcast operation's two operands are summed."""


@lowers(BroadcastGradientArgs)
def broadcast_gradient_args(n: Node, b: Builder) -> list[Expr]:
    """Axes at which an operand has size 1 or none at all; nothing when the shapes are equal."""
    known = [n.s0.entries, n.s1.entries]
    if None not in known:
        first, second = (list(sizes or ()) for sizes in known)
        rank = max(len(first), len(second))
        padded = [[1] * (rank - len(sizes)) + sizes for sizes in (first, second)]
        # An open size may be 1 next to a larger one; next to 1 any is right, as a sum over one element changes nothing.
        both = [isinstance(a, int) and isinstance(c, int) for a, c in zip(*padded, strict=True)]
        if all(a == c or 1 in (a, c) or sure for a, c, sure in zip(*padded, both, strict=True)):
            axes = [[axis for axis, size in enumerate(sizes) if size == 1 and first != second] for sizes in padded]
            return [b.ints(*axes[0]), b.ints(*axes[1])]
    shapes = [n.s0.cast(INT64), n.s1.cast(INT64)]
    lengths = [shape.sizes() for shape in shapes]
    rank_ = lengths[0].maximum(lengths[1])
    padded_ = [concat([_ones(rank_ - length), shape], 0) for shape, length in zip(shapes, lengths, strict=True)]
    # Two shapes are equal when the padded ones are and nothing was padded.
    differ = (~padded_[0].equals(padded_[1])).cast(INT64).sum(0, keepdims=True)
    unequal = (differ + (lengths[0] - lengths[1]) * (lengths[0] - lengths[1])) > 0
    found = []
    for shape in padded_:
        chosen = shape.equals(1) & unequal
        found.append(b.op(std.NonZero, chosen).reshape(-1))
    return [found[0], found[1]]


def _ones(length: Expr) -> Expr:
    return length.builder.fill(1, length, INT64)


class ShapeN(RawOp):
    """The shapes of several tensors."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """N must be the number of operands."""
        check_count(call, "input")


@lowers(ShapeN)
def shape_n(n: Node, _: Builder) -> list[Expr]:
    """A Shape for each operand."""
    return [operand.sizes() for operand in n.variadic("input")]


class ConcatOffset(RawOp, concat_dim=""):
    """Where each operand of a concatenation starts in its result."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """N must be the number of shapes."""
        check_count(call, "shape")


@lowers(ConcatOffset)
def concat_offset(n: Node, b: Builder) -> list[Expr]:
    """Along the axis the sizes of the operands before, elsewhere 0."""
    shapes = n.variadic("shape")
    known, place = [shape.entries for shape in shapes], n.concat_dim.entries
    if None not in known and place is not None and isinstance(place[0], int):
        along = [(sizes or ())[place[0]] for sizes in known]
        if all(isinstance(size, int) for size in along[:-1]):
            starts = [sum(size for size in along[:count] if isinstance(size, int)) for count in range(len(along))]
            rows = np.zeros((len(along), len(known[0] or ())), np.int64)
            rows[:, place[0]] = starts
            return [b.constant(row, shapes[0].dtype) for row in rows]
    length = shapes[0].sizes()
    axis = n.concat_dim.cast(INT64).reshape(1)
    axis = b.where(axis < 0, axis + length, axis)
    places = up_to(b, length)
    mask = places.equals(axis).cast(shapes[0].dtype)
    offsets = [shapes[0] - shapes[0]]
    for shape in shapes[:-1]:
        offsets.append(offsets[-1] + shape * mask)
    return offsets


class DynamicStitch(RawOp):
    """Interleaves the rows of several tensors by index; among equal indices the last one wins, gaps are zeros."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """As many data as indices, and each data's leading axes as its indices'."""
        pairs = cls.pairs(call)
        for number, (indices, data) in enumerate(pairs):
            if indices.shape is None or data.shape is None:
                continue
            if not starts(data.shape, indices.shape):
                what = f"a shape that starts with {list(indices.shape)} (as indices[{number}])"
                raise call.error(f"data[{number}]", what, list(data.shape))

    @classmethod
    def pairs(cls, call: Call) -> list[tuple[TensorInfo, TensorInfo]]:
        """Indices and data that belong together."""
        indices, data = call.lists["indices"], call.lists["data"]
        if not indices or len(indices) != len(data):
            raise call.error("data", "as many operands as indices, at least one", f"{len(data)} and {len(indices)}")
        return list(zip(indices, data, strict=True))


class ParallelDynamicStitch(DynamicStitch):
    """DynamicStitch without an order among equal indices; here, too, the last one wins."""


@lowers(DynamicStitch, ParallelDynamicStitch)
def dynamic_stitch(n: Node, b: Builder) -> Expr:
    """Finds for each row of the result the last operand row with its index, and gathers; row 0 holds zeros for gaps.

    Not a scatter: ONNX leaves open which of several equal indices wins there.
    """
    indices, data = n.variadic("indices"), n.variadic("data")
    flat, rows = [], []
    for number, (index, values) in enumerate(zip(indices, data, strict=True)):
        rank = rank_of(n, f"indices[{number}]", index)
        flat.append(index.cast(INT64).reshape(-1))
        rows.append(flatten_rows(values, rank))
    index, values = concat(flat, 0), concat(rows, 0)
    if not is_never_negative(index.value, index.builder.facts):
        # By the largest of all, which shows how many rows there are.
        index = within(from_front(index), largest(concat([b.ints(0), index], 0)) + 1)
    # The 0 in front stands for the row of zeros, and gives an empty set of indices a largest one.
    keys = concat([b.ints(0), index + 1], 0)
    zero_row = b.fill(0, concat([b.ints(1), tail_of(values, 1)], 0), values.dtype)
    count = largest(keys)
    targets = b.op(std.Range, b.constant(1, INT64), (count + 1).reshape(), b.constant(1, INT64))
    positions = up_to(b, b.op(std.Size, keys))
    match = targets.unsqueeze(1).equals(keys.unsqueeze(0)).cast(INT64)
    last = (match * positions).reduce(std.ReduceMax, 1, keepdims=False)
    return concat([zero_row, values], 0).take(last)


class MirrorPadGrad(RawOp, paddings="R 2", T=FLOATS):
    """Gradient of a mirrored padding: the padding's elements are added to those that they mirror."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Paddings are given for every axis of the input."""
        shape, rank = call.operands["input"].shape, call.sizes.get("R")
        if shape is not None and isinstance(rank, int) and len(shape) != rank:
            raise call.error("paddings", f"a row for each of input's {len(shape)} axes", f"{rank} rows")


@lowers(MirrorPadGrad)
def mirror_pad_grad(n: Node, _: Builder) -> Expr:
    """Axis by axis: the padding of either side is cut off, turned round, and added to the part that it mirrors."""
    gradient = n.input
    rank = rank_of(n, "input", gradient)
    shift = 1 if n.mode == "REFLECT" else 0
    flat = n.paddings.reshape(-1)
    known = n.constant("paddings")
    widths: list[Size] | None = [int(width) for width in known.reshape(-1)] if known is not None else entries(flat)
    if widths is None:
        wide = flat.cast(INT64)
        widths = [wide.slice(position, position + 1, axis=0) for position in range(2 * rank)]
    for axis in range(rank):
        before, after = widths[2 * axis : 2 * axis + 2]
        if isinstance(before, int) and isinstance(after, int) and before == after == 0:
            continue
        gradient = _unfold(gradient, axis, before, after, shift)
    return gradient


def _unfold(gradient: Expr, axis: int, before: Size, after: Size, shift: int) -> Expr:
    b = gradient.builder
    size = gradient.size(axis)
    inner = size - before - after
    middle = gradient.slice(before, before + inner, axis=axis)
    left = b.reverse(gradient.slice(0, before, axis=axis), axis)
    right = b.reverse(gradient.slice(before + inner, size, axis=axis), axis)
    left = padded(left, {axis: (shift, inner - before - shift)})
    right = padded(right, {axis: (inner - after - shift, shift)})
    return middle + left + right
