"""Lowering of the ops that find and order elements."""

from __future__ import annotations

import numpy as np

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.sorting import (
    ListDiff,
    NthElement,
    TopK,
    TopKV2,
    Unique,
    UniqueWithCounts,
    UniqueWithCountsV2,
    Where,
)
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import INT64
from lstm_lower.passes.formulas.sizes import wide
from lstm_lower.passes.rules.arrays import unique_slices
from lstm_lower.passes.rules.ordinary.filling import full
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(Where, repeatable=True)
def where(n: Node) -> dict[str, Expr]:
    """NonZero's result has a column for each place; a scalar has a place without numbers."""
    b, x = n.builder, n.moved("condition")
    if x.dtype.name != "BOOL":
        x = computed(x)
        x = ~x.equals(0)
    if x.shape == ():
        count = x.cast(INT64).reshape(1)
        return {"index": full(b.sizes([count, 0]), 0, INT64)}
    return {"index": b.op(std.NonZero, x).transpose(1, 0)}


@lowers(Unique, UniqueWithCounts, UniqueWithCountsV2, repeatable=True)
def unique(n: Node) -> dict[str, Expr]:
    """ONNX's Unique."""
    axis = n.fixed("axis") if n.op is UniqueWithCountsV2 else None
    return unique_slices(n.x, 0 if axis is None or not axis.size else int(axis.reshape(-1)[0]))


@lowers(ListDiff, repeatable=True)
def list_diff(n: Node) -> dict[str, Expr]:
    """The elements that equal none of y."""
    b, x, y = n.builder, n.x, n.y
    known, others = n.constant("x"), n.constant("y")
    if known is not None and others is not None:
        # The order of axes in the gradient of a product along some of them; a Transpose has it as an attribute.
        kept = np.flatnonzero(~np.isin(known, others))
        return {"out": b.constant(known[kept], x.dtype), "idx": b.constant(kept, INT64)}
    equal = x.unsqueeze(1).equals(y.unsqueeze(0)).cast(INT64).sum(1)
    places = b.op(std.NonZero, equal < 1).reshape(-1)
    return {"out": x.take(places), "idx": places}


@lowers(TopK, TopKV2, repeatable=True)
def top_k(n: Node) -> dict[str, Expr]:
    """ONNX's TopK, which takes the first of equal ones too."""
    b = n.builder
    count = b.ints(n.k) if isinstance(n.k, int) else wide(n.k).reshape(1)
    values, indices = b.ops(std.TopK, computed(n.moved("input")), count, outputs=2, axis=-1, sorted=int(n.sorted))
    return {"values": values, "indices": indices}


@lowers(NthElement, repeatable=True)
def nth_element(n: Node) -> dict[str, Expr]:
    """The last of the n + 1 smallest or largest."""
    b, number = n.builder, wide(n.n)
    values, _ = b.ops(std.TopK, computed(n.moved("input")), number.reshape(1) + 1, outputs=2, largest=int(n.reverse))
    return {"values": values.take(number, axis=-1)}
