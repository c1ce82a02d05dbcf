"""Vectors of sizes, entry by entry: an `int` where the size is known, else an int64 tensor of shape [1].

Python's arithmetic works on the mixture: on numbers it computes, on tensors it emits.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.values import MOST_ENTRIES

Size = int | Expr


def entries(vector: Expr) -> list[Size] | None:
    """The entries of an integer vector; `None` when its length is not known."""
    known = vector.entries
    if known is None:
        return None
    wide = vector.cast(ir.DataType.INT64) if any(not isinstance(size, int) for size in known) else vector
    return [
        size if isinstance(size, int) else wide.slice(position, position + 1, axis=0)
        for position, size in enumerate(known)
    ]


def wide(vector: Expr) -> Expr:
    """Integers as int64, a constant where all are known and not many."""
    b, int64 = vector.builder, ir.DataType.INT64
    known = b.facts.constant(vector.value)
    if vector.dtype != int64 and known is not None and known.size <= MOST_ENTRIES:
        return b.constant(known, int64)
    return vector.cast(int64)


def at_least(size: Size, bound: Size) -> Size:
    """The larger of the two."""
    if isinstance(size, int) and isinstance(bound, int):
        return max(size, bound)
    return size.maximum(bound) if isinstance(size, Expr) else _expr(bound).maximum(size)


def at_most(size: Size, bound: Size) -> Size:
    """The smaller of the two."""
    if isinstance(size, int) and isinstance(bound, int):
        return min(size, bound)
    return size.minimum(bound) if isinstance(size, Expr) else _expr(bound).minimum(size)


def from_end(index: Size, size: Size) -> Size:
    """An index as Python reads it: a negative one counts from the end."""
    if isinstance(index, int):
        return index + size if index < 0 else index
    return index.builder.where(index < 0, index + size, index)


def divided(size: Size, by: Size) -> Size:
    """The quotient of two sizes, rounded down."""
    if isinstance(size, int) and isinstance(by, int):
        return size // by
    return size / by if isinstance(size, Expr) else _expr(by).like(size) / by


def remainder(size: Size, by: Size) -> Size:
    """The remainder of a division that rounds down."""
    if isinstance(size, int) and isinstance(by, int):
        return size % by
    typed = _expr(by) if isinstance(size, int) else size
    return typed.like(size) % typed.like(by)


def scalar(builder: Builder, size: Size) -> Expr:
    """A size as an int64 scalar."""
    if isinstance(size, int):
        return builder.constant(size, ir.DataType.INT64)
    return size if size.shape == () else size.reshape()


def up_to(builder: Builder, size: Size) -> Expr:
    """The numbers 0, 1, ... below a size, in its dtype."""
    end = scalar(builder, size)
    return builder.op(std.Range, end.like(0), end, end.like(1))


def with_size(x: Expr, axis: int, size: Expr) -> Expr:
    """X as it is, of which the run fails unless its size along an axis is this one [1].

    A Split of one part, since its kernels compare in every runtime, and neither onnxruntime's optimiser nor ours takes
    it for nothing, as they do a Reshape to a size that is known by name.
    """
    return x.builder.ops(std.Split, x, size, outputs=1, axis=axis)[0]


def _expr(size: Size) -> Expr:
    assert isinstance(size, Expr)
    return size
