"""Definitions of TensorFlow's reductions over segments: rows that share a number are reduced to one.

Symbols: N rows, S segments.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, starts
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import COMPLEX, FLOATS
from lstm_lower.ops.indexing import INDEX

_NUMBERS = (*FLOATS, "int32", "int64")


def rows_of(call: Call, name: str, number: Dim) -> list[TensorInfo]:
    """`number` rows like those of an operand.

    Raises:
        InvalidModelError, InvalidInputError: the operand is a scalar.
    """
    shape = call.operands[name].shape
    if shape is not None and not shape:
        raise call.error(name, "rank 1 or more", "rank 0")
    return [TensorInfo(call.types.get("T"), None if shape is None else (number, *shape[1:]))]


class _SortedSegments(OpDef, abstract=True):
    """A reduction over segments whose numbers do not decrease; the last number says how many there are."""

    class Types:
        T = _NUMBERS
        Tindices = INDEX

    class Inputs:
        data = operand(None)
        segment_ids = operand("N", "Tindices")

    class Outputs:
        output = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """One row per segment."""
        ids = call.operands["segment_ids"].value
        return rows_of(call, "data", None if ids is None else int(ids.max(initial=-1)) + 1)


class SegmentSum(_SortedSegments):
    """Sums of the segments; 0 for one without rows."""


class SegmentMean(_SortedSegments):
    """Means of the segments; 0 for one without rows."""

    class Types:
        T = FLOATS
        Tindices = INDEX


class SegmentProd(_SortedSegments):
    """Products of the segments; 1 for one without rows."""


class SegmentMax(_SortedSegments):
    """Maxima of the segments; 0 for one without rows."""


class SegmentMin(_SortedSegments):
    """Minima of the segments; 0 for one without rows."""


class _UnsortedSegments(OpDef, abstract=True):
    """A reduction over segments in any order; rows with a negative number are left out."""

    class Types:
        T = _NUMBERS
        Tindices = INDEX
        Tnumsegments = INDEX

    class Inputs:
        data = operand(None)
        segment_ids = operand(None, "Tindices", indexes="num_segments")
        num_segments = operand("", "Tnumsegments")

    class Outputs:
        output = operand(None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The segment numbers' shape starts that of the data."""
        data, ids = call.operands["data"].shape, call.operands["segment_ids"].shape
        if data is None or ids is None:
            return
        if not starts(data, ids):
            raise call.error("segment_ids", f"a shape that starts {list(data)} (as data)", list(ids))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """One row per segment."""
        data, ids = call.operands["data"].shape, call.operands["segment_ids"].shape
        number = call.operands["num_segments"].value
        dims: tuple[Dim, ...] | None = None
        if data is not None and ids is not None:
            dims = (None if number is None else int(number), *data[len(ids) :])
        return [TensorInfo(call.types.get("T"), dims)]


class UnsortedSegmentSum(_UnsortedSegments):
    """Sums of the segments; 0 for one without rows."""

    class Types:
        T = (*_NUMBERS, *COMPLEX)
        Tindices = INDEX
        Tnumsegments = INDEX


class UnsortedSegmentProd(_UnsortedSegments):
    """Products of the segments; 1 for one without rows."""


class UnsortedSegmentMax(_UnsortedSegments):
    """Maxima of the segments; the dtype's lowest number for one without rows."""


class UnsortedSegmentMin(_UnsortedSegments):
    """Minima of the segments; the dtype's highest number for one without rows."""


class _SparseSegments(_SortedSegments, abstract=True):
    """A reduction over segments of chosen rows, as a lookup of embeddings combines them."""

    class Types:
        T = FLOATS
        Tidx = INDEX
        Tsegmentids = INDEX

    class Inputs:
        data = operand(None)
        indices = operand("N", "Tidx")
        segment_ids = operand("N", "Tsegmentids")

    class Attrs:
        # Only tells TensorFlow which form the gradient is to have.
        sparse_gradient = attr(bool, False)


class SparseSegmentSum(_SparseSegments):
    """Sums of the rows `data[indices]` by segment."""


class SparseSegmentMean(_SparseSegments):
    """Means of the rows `data[indices]` by segment; 0 for one without rows."""


class SparseSegmentSqrtN(_SparseSegments):
    """Sums of the rows `data[indices]` by segment over the square root of their number; 0 for one without rows."""


class _CountedSparseSegments(_SparseSegments, abstract=True):
    """The same with the number of segments."""

    class Types:
        T = FLOATS
        Tidx = INDEX
        Tsegmentids = INDEX
        Tnumsegments = INDEX

    class Inputs(_SparseSegments.Inputs):
        segment_ids = operand("N", "Tsegmentids", indexes="num_segments")
        num_segments = operand("", "Tnumsegments")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """One row per segment."""
        number = call.operands["num_segments"].value
        return rows_of(call, "data", None if number is None else int(number))


class SparseSegmentSumWithNumSegments(_CountedSparseSegments):
    """SparseSegmentSum with the number of segments."""


class SparseSegmentMeanWithNumSegments(_CountedSparseSegments):
    """SparseSegmentMean with the number of segments."""


class SparseSegmentSqrtNWithNumSegments(_CountedSparseSegments):
    """SparseSegmentSqrtN with the number of segments."""


class _SparseSegmentGradient(OpDef, abstract=True):
    """Gradient of `data`: each chosen row's share of its segment's gradient, added where the row was read."""

    class Types:
        T = FLOATS
        Tidx = INDEX
        Tsegmentids = INDEX

    class Inputs:
        grad = operand(None)
        indices = operand("N", "Tidx")
        segment_ids = operand("N", "Tsegmentids")
        output_dim0 = operand("", "int32")

    class Outputs:
        output = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """As many rows as `data` had."""
        number = call.operands["output_dim0"].value
        return rows_of(call, "grad", None if number is None else int(number))


class SparseSegmentSumGrad(_SparseSegmentGradient):
    """Gradient of SparseSegmentSum."""

    forward = "SparseSegmentSum"


class SparseSegmentMeanGrad(_SparseSegmentGradient):
    """Gradient of SparseSegmentMean."""

    forward = "SparseSegmentMean"


class SparseSegmentSqrtNGrad(_SparseSegmentGradient):
    """Gradient of SparseSegmentSqrtN."""

    forward = "SparseSegmentSqrtN"


class _SparseRows(_SparseSegmentGradient, abstract=True):
    """The rows of a sparse gradient of `data`: those that were read, in order, and their numbers."""

    class Inputs:
        grad = operand(None)
        indices = operand("N", "Tidx")
        segment_ids = operand("N", "Tsegmentids")
        dense_output_dim0 = operand("", "int32")

    class Outputs(_SparseSegmentGradient.Outputs):
        sorted_unique_indices = operand("U", "Tidx")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """As many rows as different ones were read."""
        indices = call.operands["indices"].value
        number = None if indices is None else len(set(indices.ravel().tolist()))
        return [*rows_of(call, "grad", number), TensorInfo(call.types.get("Tidx"), (number,))]


class SparseSegmentSumGradV2(_SparseRows):
    """Gradient of SparseSegmentSum, of the rows that were read."""

    forward = "SparseSegmentSum"


class SparseSegmentMeanGradV2(_SparseRows):
    """Gradient of SparseSegmentMean, of the rows that were read."""

    forward = "SparseSegmentMean"


class SparseSegmentSqrtNGradV2(_SparseRows):
    """Gradient of SparseSegmentSqrtN, of the rows that were read."""

    forward = "SparseSegmentSqrtN"
