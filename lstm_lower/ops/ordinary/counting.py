"""Definitions of TensorFlow's ops that count elements, or find their place among others.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import agree
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import ORDERED, RawOp, number, shape_of


class Bucketize(RawOp):
    """How many of the boundaries, which are sorted, are not above each element."""


class LowerBound(RawOp, sorted_inputs="B N", values="B M", T=ORDERED):
    """How many elements of a row are below each value."""


class UpperBound(RawOp, sorted_inputs="B N", values="B M", T=ORDERED):
    """How many elements of a row are not above each value."""


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


class DenseBincount(RawOp, size=""):
    """Bincount of a vector, or of each row of a matrix; with `binary_output` whether a number occurs at all."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A vector or a matrix, and a weight for each number, or none at all."""
        shape = shape_of(call, "input")
        if shape is not None and len(shape) not in (1, 2):
            raise call.error("input", "rank 1 or 2", f"rank {len(shape)}")
        _check_weights(call, "input")


class HistogramFixedWidth(RawOp, value_range="2", nbins=""):
    """How many values lie in each of `nbins` equal parts of a range; what is beyond counts at its ends, NaN nowhere."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There is a part."""
        bins = number(call, "nbins")
        if bins is not None and bins < 1:
            raise call.error("nbins", "1 or more", bins)
