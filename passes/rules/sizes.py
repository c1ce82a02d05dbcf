"""Vectors of sizes, entry by entry: an `int` where the size is known, else an int64 tensor of shape [1].

Python's arithmetic works on the mixture: on numbers it computes, on tensors it emits.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph.expressions import Expr

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


def _expr(size: Size) -> Expr:
    assert isinstance(size, Expr)
    return size
