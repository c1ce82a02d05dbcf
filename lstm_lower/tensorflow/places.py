"""Rows of lists by their places: all of them in order, or some."""

from __future__ import annotations

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.emit import END
from lstm_lower.graph.expressions import Expr
from lstm_lower.tensorflow.element_lists import Fresh, Rows, TensorList
from lstm_lower.tensorflow.translator import zeros
from lstm_lower.tensorflow.values import INT64


def _is_range(indices: Expr) -> Expr | None:
    """The end of a range of numbers from 0 on; `None` where indices are anything else."""
    maker = indices.builder.facts.maker(indices.value)
    while isinstance(maker, std.Cast | std.Identity):
        maker = indices.builder.facts.maker(maker.node.inputs[0])
    if not isinstance(maker, std.Range):
        return None
    start, limit, delta = maker.node.inputs
    facts = indices.builder.facts
    if facts.entries(start) != (0,) or facts.entries(delta) != (1,):
        return None
    assert limit is not None
    return Expr(indices.builder, limit).cast(INT64)


def _same(a: Expr, b: Expr) -> bool:
    return a.value is b.value or (a.entries is not None and a.entries == b.entries)


def gather(held: TensorList, indices: Expr) -> Expr:
    """The elements at some places, as one tensor."""
    end = _is_range(indices)
    if end is not None and _same(end, held.length()):
        return held.rows()
    rows = held.rows()
    return rows.builder.op(std.Gather, rows, indices, axis=0)


def scatter(held: TensorList, indices: Expr, values: Expr, *, grows: bool = False) -> TensorList:
    """A list some of whose elements a tensor's rows replace; where it grows, as many as the indices ask for."""
    end, count = _is_range(indices), held.length()
    if end is not None and (held.empty or _same(end, count) or (grows and count.entries == (0,))):
        if isinstance(held, Fresh):
            return Rows(values)
        raise UnsupportedOpError("a TensorArray requires to be new where it is written whole, got one in use")
    b = values.builder
    sizes = b.op(std.Shape, values).slice(1, END, axis=0)
    if held.empty or grows:
        # Without indices the largest is -1, as behind a list of none.
        largest = b.op(std.ReduceMax, b.concat([b.ints(-1), indices.cast(INT64)], 0), keepdims=0)
        count = count.maximum(largest + 1)
    if isinstance(held, Fresh):
        base = zeros(b, held.element_dtype, b.concat([count.reshape(1), sizes], 0))
    else:
        base = (held.resized(count) if grows else held).rows()
    return Rows(b.op(std.ScatterND, base, indices.cast(INT64).unsqueeze(1), values))


def joined(held: TensorList) -> list[Expr]:
    """The elements one behind another, and the length of each."""
    rows = held.rows()
    b = rows.builder
    sizes = b.op(std.Shape, rows)
    joined = b.op(std.Reshape, rows, b.concat([b.ints(-1), sizes.slice(2, END, axis=0)], 0))
    lengths = b.op(std.Expand, sizes.slice(1, 2, axis=0), sizes.slice(0, 1, axis=0))
    return [joined, lengths]


def divided(values: Expr, lengths: Expr) -> TensorList:
    """Elements that stand one behind another, all of one length."""
    b = values.builder
    count = b.op(std.Shape, lengths)
    tail = b.op(std.Shape, values).slice(1, END, axis=0)
    return Rows(b.op(std.Reshape, values, b.concat([count, b.ints(-1), tail], 0)))
