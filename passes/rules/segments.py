"""Lowering of the reductions over segments: rows scattered into one row per segment.

A row that belongs to no segment goes to one behind the last, which is cut off.

Symbols: N rows, S segments.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from ml_dtypes import finfo

from lstm_lower.dims import starts
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Scalar, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPLEX, COMPUTED, FLOATS, INDEX, RawOp
from lstm_lower.passes.formulas.indices import below, from_front
from lstm_lower.passes.formulas.rows import INT64, add_rows, flatten_rows, largest, tail_of
from lstm_lower.passes.formulas.sizes import Size
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


def _last_number(n: Node, b: Builder, ids: Expr) -> Size:
    """How many segments there are when the largest number says so."""
    known = n.constant("segment_ids")
    if known is not None:
        return int(known.max(initial=-1)) + 1
    return largest(concat([b.ints(-1), ids], 0)) + 1


def _given_number(n: Node, operand: str) -> Size:
    known = n.constant(operand)
    number: Expr = getattr(n, operand)
    return number.cast(INT64).reshape(1) if known is None else int(known)


def _row_counts(ids: Expr, segments: Size, dtype: ir.DataType) -> Expr:
    """The number of rows of each segment, at least 1, as [S]."""
    b = ids.builder
    ones = b.fill(1, ids.sizes(), dtype)
    return add_rows(ones.unsqueeze(1), ids, segments).reshape(-1).maximum(1)


def _per_row(values: Expr, rows: Expr) -> Expr:
    """A vector [S] in the shape that broadcasts over rows [S, ...]."""
    b = values.builder
    if rows.shape is not None:
        return values.unsqueeze(*range(1, len(rows.shape)))
    rank = b.op(std.Size, rows.sizes()).reshape(1)
    ones = b.fill(1, rank - 1, INT64)
    return b.op(std.Reshape, values, concat([b.ints(-1), ones], 0))


def _scale(counts: Expr, power: float) -> Expr:
    return counts if power == 1 else counts.sqrt()


def _sum(rows: Expr, ids: Expr, segments: Size, power: float) -> Expr:
    """The sums over the number of rows to a power."""
    total = add_rows(rows, ids, segments)
    if power:
        total = total / _per_row(_scale(_row_counts(ids, segments, rows.dtype), power), rows)
    return total


class _Rows(RawOp, abstract=True, indices="N", segment_ids="N", num_segments="", output_dim0="", dense_output_dim0=""):
    """A reduction of rows, or its gradient."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are rows."""
        name = "data" if "data" in call.operands else "grad"
        if call.operands[name].shape == ():
            raise call.error(name, "rank 1 or more", "rank 0")


class SegmentSum(_Rows, T=COMPUTED):
    """Sums of the segments; 0 for one without rows."""


class SegmentMean(_Rows, T=FLOATS):
    """Means of the segments; 0 for one without rows."""


@lowers(SegmentSum, SegmentMean)
def segment_sum(n: Node, b: Builder) -> Expr:
    """Rows added, and divided by their number."""
    ids = n.segment_ids.cast(INT64)
    return _sum(n.data, from_front(ids), _last_number(n, b, ids), 1 if n.op is SegmentMean else 0)


class SparseSegmentSum(_Rows, T=FLOATS):
    """Sums of the rows `data[indices]` by segment."""


class SparseSegmentMean(_Rows):
    """Means of the rows `data[indices]` by segment; 0 for one without rows."""


class SparseSegmentSqrtN(_Rows):
    """Sums of the rows `data[indices]` by segment over the square root of their number; 0 for one without rows."""


class SparseSegmentSumWithNumSegments(_Rows, T=FLOATS):
    """SparseSegmentSum with the number of segments."""

    indexes = ("segment_ids", "num_segments")


class SparseSegmentMeanWithNumSegments(_Rows):
    """SparseSegmentMean with the number of segments."""

    indexes = ("segment_ids", "num_segments")


class SparseSegmentSqrtNWithNumSegments(_Rows):
    """SparseSegmentSqrtN with the number of segments."""

    indexes = ("segment_ids", "num_segments")


class SparseSegmentSumGrad(_Rows):
    """Gradient of SparseSegmentSum."""


class SparseSegmentMeanGrad(_Rows):
    """Gradient of SparseSegmentMean."""


class SparseSegmentSqrtNGrad(_Rows):
    """Gradient of SparseSegmentSqrtN."""


class SparseSegmentSumGradV2(_Rows):
    """Gradient of SparseSegmentSum, of the rows that were read."""


class SparseSegmentMeanGradV2(_Rows):
    """Gradient of SparseSegmentMean, of the rows that were read."""


class SparseSegmentSqrtNGradV2(_Rows):
    """Gradient of SparseSegmentSqrtN, of the rows that were read."""


_POWERS = {
    SparseSegmentSum: 0.0,
    SparseSegmentSumWithNumSegments: 0.0,
    SparseSegmentSumGrad: 0.0,
    SparseSegmentSumGradV2: 0.0,
    SparseSegmentMean: 1.0,
    SparseSegmentMeanWithNumSegments: 1.0,
    SparseSegmentMeanGrad: 1.0,
    SparseSegmentMeanGradV2: 1.0,
    SparseSegmentSqrtN: 0.5,
    SparseSegmentSqrtNWithNumSegments: 0.5,
    SparseSegmentSqrtNGrad: 0.5,
    SparseSegmentSqrtNGradV2: 0.5,
}


@lowers(
    SparseSegmentSum,
    SparseSegmentMean,
    SparseSegmentSqrtN,
    SparseSegmentSumWithNumSegments,
    SparseSegmentMeanWithNumSegments,
    SparseSegmentSqrtNWithNumSegments,
)
def sparse_segment_sum(n: Node, b: Builder) -> Expr:
    """Rows picked, added, and divided by a power of their number."""
    ids = n.segment_ids.cast(INT64)
    numbers = from_front(ids)
    if "num_segments" in n.call.operands:
        segments = _given_number(n, "num_segments")
        numbers = below(numbers, b.sizes([segments]))
    else:
        segments = _last_number(n, b, ids)
    return _sum(n.data.take(from_front(n.indices)), numbers, segments, _POWERS[n.op])


@lowers(SparseSegmentSumGrad, SparseSegmentMeanGrad, SparseSegmentSqrtNGrad)
def sparse_segment_gradient(n: Node, b: Builder) -> Expr:
    """The segments' gradients over a power of their number of rows, picked for each row and added where it was read."""
    rows = _given_number(n, "output_dim0")
    indices = below(from_front(n.indices.cast(INT64)), b.sizes([rows]))
    return add_rows(_shares(n), indices, rows)


@lowers(SparseSegmentSumGradV2, SparseSegmentMeanGradV2, SparseSegmentSqrtNGradV2)
def sparse_segment_rows(n: Node, b: Builder) -> list[Expr]:
    """The same, added where the row stands among the different ones that were read."""
    unique, _, places, _ = b.ops(std.Unique, n.indices.cast(INT64), outputs=4, sorted=1)
    for value in (unique, places):
        value.value.type = ir.TensorType(INT64)
        b.set_shape(value, [None])
    output = add_rows(_shares(n), places, unique.sizes())
    return [output, unique]


def _shares(n: Node) -> Expr:
    """Each row's share of its segment's gradient."""
    gradient: Expr = n.grad
    ids, power = from_front(n.segment_ids.cast(INT64)), _POWERS[n.op]
    if power:
        counts = _row_counts(ids, gradient.size(0), gradient.dtype)
        gradient = gradient / _per_row(_scale(counts, power), gradient)
    return gradient.take(ids)


def _extreme(n: Node, rows: Expr, ids: Expr, segments: Size) -> Expr:
    """Rows multiplied, or their largest or smallest, from a value on that changes nothing."""
    scatter, reduction = _reduction(n)
    b = rows.builder
    sizes = concat([b.sizes([segments + 1]), tail_of(rows, 1)], 0)
    initial = b.fill(_neutral(n, reduction), sizes, rows.dtype)
    return b.op(std.ScatterND, initial, ids.unsqueeze(1), rows, reduction=scatter).slice(0, segments, axis=0)


class SegmentProd(_Rows, T=COMPUTED):
    """Products of the segments; 1 for one without rows."""


class SegmentMax(_Rows, T=COMPUTED):
    """Maxima of the segments; 0 for one without rows."""


class _UnsortedSegments(RawOp, abstract=True, num_segments=""):
    """A reduction over segments in any order; rows with a negative number are left out."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The segment numbers' shape starts that of the data."""
        data, ids = call.operands["data"].shape, call.operands["segment_ids"].shape
        if data is None or ids is None:
            return
        if not starts(data, ids):
            raise call.error("segment_ids", f"a shape that starts {list(data)} (as data)", list(ids))


class UnsortedSegmentProd(_UnsortedSegments, T=COMPUTED):
    """Products of the segments; 1 for one without rows."""

    indexes = ("segment_ids", "num_segments")


class UnsortedSegmentMax(_UnsortedSegments, T=COMPUTED):
    """Maxima of the segments; the dtype's lowest number for one without rows."""

    indexes = ("segment_ids", "num_segments")


def _reduction(n: Node) -> tuple[str, type[std.Reduction]]:
    """Names of the op in ScatterND and among the reductions of ONNX."""
    if n.op in (SegmentProd, UnsortedSegmentProd):
        return "mul", std.ReduceProd
    return ("max", std.ReduceMax) if n.op in (SegmentMax, UnsortedSegmentMax) else ("min", std.ReduceMin)


def _neutral(n: Node, reduction: type[std.Reduction]) -> Scalar:
    """The value of the op's dtype that changes no reduction."""
    if reduction is std.ReduceProd:
        return 1
    own = n.call.types["T"]
    assert own is not None
    limits = np.iinfo(own.numpy()) if own.is_integer() else finfo(own.numpy())  # type: ignore[no-untyped-call]
    value: Scalar = np.asarray(limits.min if reduction is std.ReduceMax else limits.max).item()
    return value


class UnsortedSegmentMin(_UnsortedSegments, T=COMPUTED):
    """Minima of the segments; the dtype's highest number for one without rows."""

    indexes = ("segment_ids", "num_segments")


@lowers(UnsortedSegmentProd, UnsortedSegmentMax, UnsortedSegmentMin)
def unsorted_segment_extreme(n: Node, b: Builder) -> Expr:
    """Rows with negative numbers go behind the last segment."""
    rank = rank_of(n, "segment_ids", n.segment_ids)
    segments = _given_number(n, "num_segments")
    ids = n.segment_ids.cast(INT64)
    ids = segments_or_none(ids if rank == 1 else ids.reshape(-1), b.sizes([segments]))
    return _extreme(n, flatten_rows(n.data, rank), ids, segments)


class SegmentMin(_Rows, T=COMPUTED):
    """Minima of the segments; 0 for one without rows."""


@lowers(SegmentProd, SegmentMax, SegmentMin)
def segment_extreme(n: Node, b: Builder) -> Expr:
    """The same; a maximum or minimum of no rows is 0."""
    ids = n.segment_ids.cast(INT64)
    segments = _last_number(n, b, ids)
    ids = from_front(ids)
    result = _extreme(n, n.data, ids, segments)
    if n.op is not SegmentProd:
        ones = b.fill(1, ids.sizes(), n.data.dtype)
        filled = add_rows(ones.unsqueeze(1), ids, segments).reshape(-1) > 0
        result = b.where(_per_row(filled, n.data), result, 0)
    return result


class UnsortedSegmentSum(_UnsortedSegments, T=(*COMPUTED, *COMPLEX), Tindices=INDEX):
    """Sums of the segments; 0 for one without rows."""

    indexes = ("segment_ids", "num_segments")


@lowers(UnsortedSegmentSum)
def unsorted_segment_sum(n: Node, _: Builder) -> Expr:
    """Adds rows into zeros."""
    rank = rank_of(n, "segment_ids", n.segment_ids)
    count = n.num_segments.cast(INT64).reshape(1)
    known = n.constant("num_segments")
    segments: Size = count if known is None else int(known)
    rows = flatten_rows(n.data, rank)
    ids = n.segment_ids.cast(INT64)
    ids = segments_or_none(ids if rank == 1 else ids.reshape(-1), count)
    return add_rows(rows, ids, segments)


def segments_or_none(ids: Expr, count: Expr) -> Expr:
    """Numbers of segments [N] in any order: rows of a negative one go behind the last, those beyond it are refused.

    Args:
        ids: int64.
        count: the number of segments [1].
    """
    b = ids.builder
    return b.where(ids < 0, count, below(ids, count))
