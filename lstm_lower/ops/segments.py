"""Definitions of TensorFlow's reductions over segments: rows that share a number are reduced to one.

Symbols: N rows, S segments.
"""

from __future__ import annotations

from lstm_lower.dims import starts
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPLEX, COMPUTED, FLOATS, INDEX, RawOp


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


class SegmentProd(_Rows, T=COMPUTED):
    """Products of the segments; 1 for one without rows."""


class SegmentMax(_Rows, T=COMPUTED):
    """Maxima of the segments; 0 for one without rows."""


class SegmentMin(_Rows, T=COMPUTED):
    """Minima of the segments; 0 for one without rows."""


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


class UnsortedSegmentSum(_UnsortedSegments, T=(*COMPUTED, *COMPLEX), Tindices=INDEX):
    """Sums of the segments; 0 for one without rows."""

    indexes = ("segment_ids", "num_segments")


class UnsortedSegmentProd(_UnsortedSegments, T=COMPUTED):
    """Products of the segments; 1 for one without rows."""

    indexes = ("segment_ids", "num_segments")


class UnsortedSegmentMax(_UnsortedSegments, T=COMPUTED):
    """Maxima of the segments; the dtype's lowest number for one without rows."""

    indexes = ("segment_ids", "num_segments")


class UnsortedSegmentMin(_UnsortedSegments, T=COMPUTED):
    """Minima of the segments; the dtype's highest number for one without rows."""

    indexes = ("segment_ids", "num_segments")


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

    forward = "SparseSegmentSum"


class SparseSegmentMeanGrad(_Rows):
    """Gradient of SparseSegmentMean."""

    forward = "SparseSegmentMean"


class SparseSegmentSqrtNGrad(_Rows):
    """Gradient of SparseSegmentSqrtN."""

    forward = "SparseSegmentSqrtN"


class SparseSegmentSumGradV2(_Rows):
    """Gradient of SparseSegmentSum, of the rows that were read."""

    forward = "SparseSegmentSum"


class SparseSegmentMeanGradV2(_Rows):
    """Gradient of SparseSegmentMean, of the rows that were read."""

    forward = "SparseSegmentMean"


class SparseSegmentSqrtNGradV2(_Rows):
    """Gradient of SparseSegmentSqrtN, of the rows that were read."""

    forward = "SparseSegmentSqrtN"
