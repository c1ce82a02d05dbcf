"""Lowering of the ops that count elements, or find their place among others."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import agree
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import ORDERED, RawOp, number, shape_of
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import INT64, add_rows, reshape_to
from lstm_lower.passes.formulas.sizes import Size, up_to, wide
from lstm_lower.passes.rules.filling import full
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


def _count(truth: Expr) -> Expr:
    # onnxruntime reduces no axis of nothing that is counted from behind.
    return truth.cast(INT64).sum(-1 if truth.shape is None else len(truth.shape) - 1)


class Bucketize(RawOp):
    """How many of the boundaries, which are sorted, are not above each element."""


@lowers(Bucketize, repeatable=True)
def bucketize(n: Node, b: Builder) -> Expr:
    """Compared with each boundary, which are numbers of float32; NaN is above all."""
    x = n.input if n.input.dtype == ir.DataType.DOUBLE else n.input.cast(ir.DataType.FLOAT)
    boundaries = b.constant(np.asarray(n.boundaries, np.float32), x.dtype)
    return _count(~(x.unsqueeze(-1) < boundaries))


class LowerBound(RawOp, sorted_inputs="B N", values="B M", T=ORDERED):
    """How many elements of a row are below each value."""


class UpperBound(RawOp, sorted_inputs="B N", values="B M", T=ORDERED):
    """How many elements of a row are not above each value."""


@lowers(LowerBound, UpperBound, repeatable=True)
def bound(n: Node, _: Builder) -> Expr:
    """Each value compared with its row."""
    row, value = computed(n.moved("sorted_inputs")).unsqueeze(1), computed(n.moved("values")).unsqueeze(2)
    return _count(row < value if n.op is LowerBound else ~(value < row))


def _weights(weights: Expr, count: Expr) -> Expr:
    """The weights, or ones where there are none, as a vector."""
    ones = full(count, 1, weights.dtype)
    if weights.shape is not None and 0 in weights.shape:
        return ones
    flat = weights.reshape(-1)
    if weights.shape is not None and all(isinstance(size, int) for size in weights.shape):
        return flat
    return concat([flat, ones], 0).slice(0, count, axis=0)


def _check_weights(call: Call, name: str) -> None:
    """Verifies that weights, where there are any, have the shape of what is counted.

    Raises:
        InvalidModelError, InvalidInputError: they have another one.
    """
    shape, weights = shape_of(call, name), shape_of(call, "weights")
    known = weights is not None and all(isinstance(size, int) and size > 0 for size in weights)
    if known and not agree(shape, weights):
        raise call.error("weights", f"shape {list(shape or ())} (as {name}), or size 0", list(weights or ()))


class Bincount(RawOp, size=""):
    """How often each number from 0 on occurs, or the sum of the weights where it does; larger ones do not count."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A weight for each number, or none at all."""
        _check_weights(call, "arr")


@lowers(Bincount, repeatable=True)
def bincount(n: Node, b: Builder) -> Expr:
    """Weights added at the place that each number says."""
    numbers = wide(n.arr).reshape(-1)
    return _added(b, numbers, n.weights, wide(n.moved("size")).reshape(1))


def _added(b: Builder, numbers: Expr, weights: Expr, size: Size) -> Expr:
    values = _weights(weights, numbers.sizes())
    return add_rows(values.unsqueeze(1), from_front(numbers.minimum(b.sizes([size]))), size).reshape(-1)


class DenseBincount(RawOp, size=""):
    """Bincount of a vector, or of each row of a matrix; with `binary_output` whether a number occurs at all."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A vector or a matrix, and a weight for each number, or none at all."""
        shape = shape_of(call, "input")
        if shape is not None and len(shape) not in (1, 2):
            raise call.error("input", "rank 1 or 2", f"rank {len(shape)}")
        _check_weights(call, "input")


@lowers(DenseBincount, repeatable=True)
def dense_bincount(n: Node, b: Builder) -> Expr:
    """Rows count one behind the other, each with a place for what does not count."""
    x = wide(n.input)
    size = wide(n.moved("size")).reshape(1)
    if rank_of(n, "input", x) == 1:
        output = _added(b, x, n.weights, size)
    else:
        rows = x.size(0)
        numbers = from_front(x.minimum(size)) + (up_to(b, rows) * (size + 1)).unsqueeze(1)
        flat = numbers.reshape(-1)
        values = _weights(n.weights, flat.sizes())
        table = add_rows(values.unsqueeze(1), flat, (size + 1) * b.sizes([rows]))
        output = reshape_to(table, b.sizes([rows, size + 1])).slice(0, size, axis=1)
    return (output > 0).cast(output.dtype) if n.binary_output else output


class HistogramFixedWidth(RawOp, value_range="2", nbins=""):
    """How many values lie in each of `nbins` equal parts of a range; what is beyond counts at its ends, NaN nowhere."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There is a part."""
        bins = number(call, "nbins")
        if bins is not None and bins < 1:
            raise call.error("nbins", "1 or more", bins)


@lowers(HistogramFixedWidth, repeatable=True)
def histogram_fixed_width(n: Node, b: Builder) -> Expr:
    """Distances from the range's start in its own dtype, over a part's width in float64, as TensorFlow's kernel."""
    double = ir.DataType.DOUBLE
    start, end = (n.value_range.slice(side, side + 1, axis=0) for side in (0, 1))
    bins = wide(n.nbins).reshape(1)
    beyond = n.values.reshape(-1).maximum(start) - start
    places = beyond.cast(double) / ((end - start).cast(double) / bins.cast(double))
    missing = b.op(std.IsNaN, places)
    places = b.where(missing, 0.0, places).minimum((bins - 1).cast(double)).cast(INT64)
    ones = full(places.sizes(), 1, INT64)
    counts = add_rows(ones.unsqueeze(1), b.where(missing, bins, places), bins)
    return counts.reshape(-1).cast(n.dtype)
