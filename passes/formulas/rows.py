"""Rows of tensors: flattened, numbered, added up at given places, padded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat
from lstm_lower.passes.formulas.sizes import Size

INT64 = ir.DataType.INT64


def row_numbers(places: Sequence[Expr], sizes: Sequence[int | Expr]) -> Expr:
    """Numbers of rows, counted over several axes in order, from the places along each and the axes' sizes."""
    number = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        number = number * size + place
    return number


def flatten_rows(values: Expr, rank: int) -> Expr:
    """Merges the first `rank` axes into one."""
    if rank == 1:
        return values
    b = values.builder
    leading = values.sizes()
    count = b.op(std.ReduceProd, leading.slice(0, rank, axis=0), keepdims=1) if rank else b.ints(1)
    return reshape_to(values, concat([count, tail_of(values, rank)], 0))


def reshape_to(x: Expr, sizes: Expr) -> Expr:
    """Another shape, given at run time, in which 0 is a size: before opset 14 it can only mean "as it was"."""
    allow_zero = {"allowzero": 1} if x.builder.opset >= 14 else {}
    return x.builder.op(std.Reshape, x, sizes, **allow_zero)


def tail_of(values: Expr, start: int) -> Expr:
    """The sizes from axis `start` on, as a vector."""
    b = values.builder
    if values.shape is not None and all(isinstance(size, int) for size in values.shape[start:]):
        return b.ints(*[size for size in values.shape[start:] if isinstance(size, int)])
    return values.sizes().slice(start, 2**31 - 1, axis=0)


def largest(vector: Expr) -> Expr:
    """The largest entry, as a vector of one."""
    return vector.builder.op(std.ReduceMax, vector, keepdims=1)


def add_rows(rows: Expr, ids: Expr, segments: Size, *, none_lost: bool = False) -> Expr:
    """Adds each row into zeros, at the number that stands for it in `ids` [N]; those of number `segments` are lost.

    Larger numbers fail at run time, and that one, too, where none are to be lost: what is read of a large table is
    added up without a copy of the table.
    """
    b = rows.builder
    zeros = b.fill(0, concat([b.sizes([segments if none_lost else segments + 1]), tail_of(rows, 1)], 0), rows.dtype)
    total = b.op(std.ScatterND, zeros, ids.unsqueeze(1), rows, reduction="add")
    return total if none_lost else total.slice(0, segments, axis=0)


def padded(x: Expr, amounts: Mapping[int, tuple[Size, Size]]) -> Expr:
    """Zeros before and behind x along axes; nothing is emitted for none."""
    assert x.shape is not None
    none: tuple[Size, Size] = 0, 0
    sides = [amounts.get(axis, none) for axis in range(len(x.shape))]
    widths = [side[end] for end in (0, 1) for side in sides]
    if all(isinstance(width, int) and not width for width in widths):
        return x
    return x.builder.op(std.Pad, x, x.builder.sizes(widths))


def fitted(x: Expr, axis: int, size: Size) -> Expr:
    """Cut or filled with zeros behind to a size along an axis."""
    made = padded(x, {axis: (0, size - x.size(axis))})
    own = size if isinstance(size, int) else None
    return x if made is x else x.builder.set_shape(made, [own if i == axis else d for i, d in enumerate(x.shape or ())])


def turned(x: Expr, axes: Sequence[int]) -> Expr:
    """X with the order along axes turned round."""
    b = x.builder
    if not axes:
        return x
    starts, ends = [-1] * len(axes), [-(2**31)] * len(axes)
    return b.op(std.Slice, x, b.ints(*starts), b.ints(*ends), b.ints(*axes), b.ints(*starts))
