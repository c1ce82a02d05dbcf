"""Rows of lists by their places: all of them in order, or some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Expr
from lstm_lower.passes.formulas.rows import tail_of
from lstm_lower.tensorflow.element_lists import Fresh, Put, Rows, TensorList
from lstm_lower.tensorflow.packed_lists import Packed, settled
from lstm_lower.tensorflow.values import INT64, Value

# Ends of a Slice that walks backwards to the first element, as Slice and ReverseV2 have them.
_BEGINNINGS = ((-END,), (int(np.iinfo(np.int32).min),))


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


def _is_range_backwards(indices: Expr, count: Expr) -> bool:
    """Whether indices are all places of a list of so many elements, from the last to the first."""
    b, facts = indices.builder, indices.builder.facts
    maker = facts.maker(indices.value)
    while isinstance(maker, std.Cast | std.Identity):
        maker = facts.maker(maker.node.inputs[0])
    if isinstance(maker, std.Slice):
        end, bounds = _is_range(Expr(b, maker.data)), (facts.entries(maker.starts), facts.entries(maker.ends))
        turned = maker.steps == (-1,) and bounds[0] == (-1,) and bounds[1] in _BEGINNINGS
        return turned and end is not None and _same(end, count)
    if not isinstance(maker, std.Range) or any(facts.entries(value) != (-1,) for value in maker.inputs[1:]):
        return False
    last = facts.maker(maker.inputs[0])
    if not isinstance(last, std.Sub) or facts.entries(last.inputs[1]) != (1,) or last.inputs[0] is None:
        return False
    return _same(Expr(b, last.inputs[0]).cast(INT64), count)


def _same(a: Expr, b: Expr) -> bool:
    return a.value is b.value or (a.entries is not None and a.entries == b.entries)


def gather(held: TensorList, indices: Expr) -> Expr:
    """The elements at some places, as one tensor."""
    end = _is_range(indices)
    if end is not None and _same(end, held.length()):
        return stacked(held)
    # Where all are gathered, they are of one shape.
    rows = stacked(held) if _is_range_backwards(indices, held.length()) else held.rows()
    return rows.take(indices)


def scatter(
    held: TensorList,
    indices: Expr,
    values: Expr,
    *,
    add: Callable[[list[Expr]], Expr] | None = None,
    grows: bool = False,
) -> TensorList:
    """A list some of whose elements a tensor's rows replace; where it grows, as many as the indices ask for.

    Args:
        held: the list.
        indices: places in it.
        values: the rows.
        add: emits a TensorScatterAdd, for a list to whose elements the rows are added.
        grows: whether the list does.
    """
    end, count = _is_range(indices), held.length()
    if end is not None and (held.empty or _same(end, count) or (grows and count.entries == (0,))):
        if isinstance(held, Fresh):
            return Rows(values)
        if add is not None:
            return Rows(stacked(held) + values)
        raise UnsupportedOpError("a TensorArray must be new where it is written whole, got one in use")
    b = values.builder
    sizes = tail_of(values, 1)
    if held.empty or grows:
        # Without indices the largest is -1, as behind a list of none.
        largest = b.op(std.ReduceMax, b.concat([b.ints(-1), indices.cast(INT64)], 0), keepdims=0)
        count = count.maximum(largest + 1)
    if isinstance(held, Fresh):
        base = b.fill(0, b.concat([count.reshape(1), sizes], 0), held.element_dtype)
    else:
        base = (held.resized(count) if grows else held).rows()
    places = indices.cast(INT64).unsqueeze(1)
    return Rows(b.op(std.ScatterND, base, places, values) if add is None else add([base, places, values]))


def stacked(held: TensorList) -> Expr:
    """The elements as one tensor."""
    found = settled(held)
    return found.stacked() if isinstance(found, Packed) else held.rows()


def joined(held: TensorList) -> list[Expr]:
    """The elements one behind another, and the length of each."""
    found = settled(held)
    if isinstance(found, Packed):
        return [*found.joined()]
    elements = _elements(found)
    if elements:
        b = elements[0].builder
        return [b.concat(elements, 0), b.concat([x.sizes().slice(0, 1, axis=0) for x in elements], 0)]
    rows = held.rows()
    b = rows.builder
    sizes = rows.sizes()
    joined = b.op(std.Reshape, rows, b.concat([b.ints(-1), sizes.slice(2, END, axis=0)], 0))
    lengths = b.op(std.Expand, sizes.slice(1, 2, axis=0), sizes.slice(0, 1, axis=0))
    return [joined, lengths]


def _elements(held: TensorList) -> list[Expr] | None:
    """The elements of a list that was written one by one; `None` where it was made otherwise."""
    written: dict[Any, Value] = {}
    added = set()
    while isinstance(held, Put) and held.index.entries is not None:
        place = held.index.entries[0]
        if place in added:
            return None
        written.setdefault(place, held.element)
        added |= {place} if held.add else set()
        held = held.base
    if not isinstance(held, Fresh) or {*written} != {*range(len(written))}:
        return None
    found = [written[number] for number in range(len(written))]
    return found if all(isinstance(x, Expr) for x in found) and held.length().entries == (len(found),) else None


def divided(values: Expr, lengths: Expr) -> TensorList:
    """Elements that stand one behind another."""
    b = values.builder
    tail = tail_of(values, 1)
    if _are_equal(lengths):
        return Rows(b.op(std.Reshape, values, b.concat([lengths.sizes(), b.ints(-1), tail], 0)))
    sizes = lengths.cast(INT64)
    counts = sizes * b.op(std.ReduceProd, tail, keepdims=1)
    tails = b.op(std.Expand, tail.unsqueeze(0), b.concat([sizes.sizes(), tail.sizes()], 0))
    shapes = b.concat([sizes.unsqueeze(1), tails], 1)
    known = None if values.shape is None else (None, *values.shape[1:])
    return Packed(Rows(values.reshape(-1)), Rows(counts), Rows(shapes), known)


def _are_equal(numbers: Expr) -> bool:
    """Whether all numbers are surely the same."""
    facts = numbers.builder.facts
    maker = facts.maker(numbers.value)
    while isinstance(maker, std.Cast | std.Identity):
        maker = facts.maker(maker.node.inputs[0])
    if isinstance(maker, std.Expand):
        return facts.elements(maker.node.inputs[0]) == 1
    known = facts.constant(numbers.value)
    return facts.uniform(numbers.value) is not None or (known is not None and len({*known.reshape(-1).tolist()}) <= 1)
