"""Tensors of different shapes as one vector: the elements of each behind those of the one before."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.graph.values import Dim
from lstm_lower.passes.formulas.rows import reshape_to


@dataclasses.dataclass
class Pieces:
    """The vector, and what tells the tensors in it.

    Attributes:
        elements: all elements, [N].
        counts: how many elements each tensor has, int64, [tensors].
        shape_of: the shape of a tensor, an int64 vector, by its number, an int64 scalar.
        known: what is known of all shapes.
    """

    elements: Expr
    counts: Expr
    shape_of: Callable[[Expr], Expr]
    known: Sequence[Dim | None] | None = None

    @functools.cached_property
    def bounds(self) -> tuple[Expr, Expr]:
        """Where the elements of each tensor begin, and where they end."""
        b = self.counts.builder
        ends = b.op(std.CumSum, self.counts, b.constant(0, ir.DataType.INT64))
        return ends - self.counts, ends

    def get(self, number: Expr) -> Expr:
        """One of the tensors."""
        place = number.reshape(1)
        start, end = (bounds.take(place) for bounds in self.bounds)
        return shaped(self.elements.slice(start, end, axis=0), self.shape_of(number), self.known)


def shaped(vector: Expr, sizes: Expr, known: Sequence[Dim | None] | None = None) -> Expr:
    """A vector in another shape, in which a size may be 0: before opset 14 that has another meaning in a Reshape."""
    b = vector.builder
    if b.opset >= 14:
        result = reshape_to(vector, sizes)
    else:
        least = sizes.maximum(1)
        missing = b.op(std.ReduceProd, least, keepdims=1) - vector.sizes()
        whole = b.op(std.Reshape, b.concat([vector, b.fill(0, missing, vector.dtype)], 0), least)
        result = b.op(std.Slice, whole, b.zeros_like(sizes), sizes)
    return result if known is None else b.set_shape(result, known)
