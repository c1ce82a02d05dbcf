"""Definitions of TensorFlow's ops that read shapes or give arrays another one.

Signatures: TensorFlow's raw ops of the same names. Symbols: R rank of a result.
"""

from __future__ import annotations

import math

from lstm_lower.dims import Dim, agree
from lstm_lower.opdef import Call, attr
from lstm_lower.ops.raw import RawOp, count_axis, number, numbers, shape_of


class Shape(RawOp):
    """The sizes of all axes."""


class Size(RawOp):
    """The number of elements."""


class Reshape(RawOp, shape="R"):
    """The elements in another shape; a size of -1 is inferred."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """As many elements as before."""
        sizes, shape = numbers(call, "shape"), shape_of(call, "tensor")
        if sizes is None:
            return
        if sizes.count(-1) > 1 or any(size < -1 for size in sizes):
            raise call.error("shape", "sizes of 0 or more, and -1 once at most", f"{sizes}")
        known = [size for size in shape or () if isinstance(size, int)]
        if shape is not None and len(known) == len(shape):
            count, rest = math.prod(known), math.prod(size for size in sizes if size != -1)
            if count != rest if -1 not in sizes else rest and count % rest:
                raise call.error("shape", f"sizes of {count} elements (as tensor)", f"{sizes}")


class ExpandDims(RawOp):
    """An axis of size 1 more."""

    static_operands = ("axis",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axis is one of the result's."""
        shape, axis = shape_of(call, "input"), number(call, "axis")
        if shape is not None and axis is not None:
            count_axis(call, "axis", axis, len(shape) + 1)


class Squeeze(RawOp):
    """Removes axes of size 1: the named ones, or all of them if none is named."""

    class Attrs:
        squeeze_dims = attr(list[int], [])
        axis = attr(list[int], [])

    @classmethod
    def axes(cls, call: Call) -> tuple[int, ...] | None:
        """The axes that go; `None` where that is not known."""
        shape = shape_of(call, "input")
        given = [*call.attributes["squeeze_dims"], *call.attributes["axis"]]
        if shape is None:
            return tuple(given) if given and min(given) >= 0 else None
        if not given:
            known = all(isinstance(size, int) for size in shape)
            return tuple(axis for axis, size in enumerate(shape) if size == 1) if known else None
        return tuple(sorted({count_axis(call, "attribute squeeze_dims", axis, len(shape)) for axis in given}))

    @classmethod
    def verify(cls, call: Call) -> None:
        """The named axes have size 1."""
        axes, shape = cls.axes(call), shape_of(call, "input")
        if axes is not None and shape is not None and any(isinstance(shape[a], int) and shape[a] != 1 for a in axes):
            raise call.error("input", f"size 1 at axes {list(axes)}", list(shape))


class _Stated(RawOp, abstract=True):
    """Passes its input, of whose shape something is said."""

    class Attrs:
        unknown_rank = attr(bool, False)

    @classmethod
    def stated(cls, call: Call) -> tuple[Dim, ...] | None:
        """The shape that is said, -1 being an open size."""
        if call.attributes["unknown_rank"]:
            return None
        return tuple(size if size >= 0 else None for size in call.attributes["shape"])


class EnsureShape(_Stated):
    """Its input, which must have a shape."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The input may have it."""
        shape, stated = shape_of(call, "input"), cls.stated(call)
        if not agree(shape, stated):
            raise call.error("input", f"shape {list(stated or ())}, as attribute shape says", list(shape or ()))


class PlaceholderWithDefault(_Stated):
    """Its input, the default of a graph input that is not fed."""


class UnravelIndex(RawOp, dims="R"):
    """Flat indices as an index per axis; one row for each axis."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The indices are one, or a vector of them."""
        shape = shape_of(call, "indices")
        if shape is not None and len(shape) > 1:
            raise call.error("indices", "rank 0 or 1", f"rank {len(shape)}")
