"""Tensors of different shapes as one vector: the elements of each behind those of the one before."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.graph.values import Dim


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
    """A vector in another shape, in which a size may be 0."""
    result = vector.builder.op(std.Reshape, vector, sizes, allowzero=1)
    return result if known is None else vector.builder.set_shape(result, known)
