"""Definitions of TensorFlow's ops that count elements, or find their place among others.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import agree
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import (
    INDEX,
    ORDERED,
    index_attr,
    number,
    result,
    shape_of,
)


class Bucketize(OpDef):
    """How many of the boundaries, which are sorted, are not above each element."""

    class Types:
        T = (*INDEX, "float32", "float64")

    class Inputs:
        input = operand("*S")

    class Outputs:
        output = operand("*S", "int32")

    class Attrs:
        boundaries = attr(list[float])


class _Bound(OpDef, abstract=True):
    """Where in the rows of `sorted_inputs` the values would be put in."""

    class Types:
        T = ORDERED
        out_type = INDEX

    class Inputs:
        sorted_inputs = operand("B N")
        values = operand("B M")

    class Outputs:
        output = operand("B M", "out_type")

    class Attrs:
        out_type = index_attr()

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The values' shape."""
        return [TensorInfo(call.attributes["out_type"], (call.sizes.get("B"), call.sizes.get("M")))]


class LowerBound(_Bound):
    """How many elements of a row are below each value."""


class UpperBound(_Bound):
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


class Bincount(OpDef):
    """How often each number from 0 on occurs, or the sum of the weights where it does; larger ones do not count."""

    class Types:
        T = (*INDEX, "float32", "float64")

    class Inputs:
        arr = operand(None, "int32")
        size = operand("", "int32")
        weights = operand(None)

    class Outputs:
        bins = operand(None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """A weight for each number, or none at all."""
        _check_weights(call, "arr")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """`size` counts."""
        return result(call, (number(call, "size"),))


class DenseBincount(OpDef):
    """Bincount of a vector, or of each row of a matrix; with `binary_output` whether a number occurs at all."""

    class Types:
        Tidx = INDEX
        T = (*INDEX, "float32", "float64")

    class Inputs:
        input = operand(None, "Tidx")
        size = operand("", "Tidx")
        weights = operand(None)

    class Outputs:
        output = operand(None)

    class Attrs:
        binary_output = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """A vector or a matrix, and a weight for each number, or none at all."""
        shape = shape_of(call, "input")
        if shape is not None and len(shape) not in (1, 2):
            raise call.error("input", "rank 1 or 2", f"rank {len(shape)}")
        _check_weights(call, "input")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """`size` counts for each row."""
        shape = shape_of(call, "input")
        return result(call, None if shape is None else (*shape[:-1], number(call, "size")))


class HistogramFixedWidth(OpDef):
    """How many values lie in each of `nbins` equal parts of a range; what is beyond counts at its ends, NaN nowhere."""

    class Types:
        T = (*INDEX, "float32", "float64")
        dtype = INDEX

    class Inputs:
        values = operand(None)
        value_range = operand("2")
        nbins = operand("", "int32")

    class Outputs:
        out = operand(None, "dtype")

    class Attrs:
        dtype = index_attr()

    @classmethod
    def verify(cls, call: Call) -> None:
        """There is a part."""
        bins = number(call, "nbins")
        if bins is not None and bins < 1:
            raise call.error("nbins", "1 or more", bins)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A count for each part."""
        return [TensorInfo(call.attributes["dtype"], (number(call, "nbins"),))]
