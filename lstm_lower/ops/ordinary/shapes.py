"""Definitions of TensorFlow's ops that read shapes or give arrays another one.

Signatures: TensorFlow's raw ops of the same names. Symbols: R rank of a result.
"""

from __future__ import annotations

import math

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import (
    ALL,
    INDEX,
    Kept,
    Reshaped,
    count_axis,
    index_attr,
    number,
    result,
    said,
    shape_of,
)


class Shape(OpDef):
    """The sizes of all axes."""

    class Types:
        T = ALL
        out_type = INDEX

    class Inputs:
        input = operand(None)

    class Outputs:
        output = operand(None, "out_type")

    class Attrs:
        out_type = index_attr()

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A vector as long as the operand's rank."""
        shape = shape_of(call, "input")
        return [TensorInfo(call.attributes["out_type"], (None if shape is None else len(shape),))]


class Size(Shape):
    """The number of elements."""

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A scalar."""
        return [TensorInfo(call.attributes["out_type"], ())]


class Reshape(OpDef):
    """The elements in another shape; a size of -1 is inferred."""

    class Types:
        T = ALL
        Tshape = INDEX

    class Inputs:
        tensor = operand(None)
        shape = operand("R", "Tshape")

    class Outputs:
        output = operand(None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """As many elements as before."""
        cls.output_infos(call)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What `shape` says."""
        wanted, shape = said(call, "shape"), shape_of(call, "tensor")
        if wanted is None or None in wanted:
            return result(call, wanted)
        sizes = [size for size in wanted if isinstance(size, int)]
        if sizes.count(-1) > 1 or any(size < -1 for size in sizes):
            raise call.error("shape", "sizes of 0 or more, and -1 once at most", f"{sizes}")
        dims: list[Dim] = [None if size == -1 else size for size in sizes]
        known = [size for size in shape or () if isinstance(size, int)]
        if shape is not None and len(known) == len(shape):
            count, rest = math.prod(known), math.prod(size for size in sizes if size != -1)
            if count != rest if -1 not in sizes else rest and count % rest:
                raise call.error("shape", f"sizes of {count} elements (as tensor)", f"{sizes}")
            if -1 in sizes and rest:
                dims[sizes.index(-1)] = count // rest
        return result(call, dims)


class ExpandDims(Reshaped):
    """An axis of size 1 more."""

    static_operands = ("axis",)

    class Types:
        T = ALL
        Tdim = INDEX

    class Inputs:
        input = operand(None)
        axis = operand(None, "Tdim")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The input's shape with a 1 at the axis."""
        shape, axis = shape_of(call, "input"), number(call, "axis")
        if shape is None:
            return result(call, None)
        if axis is None:
            return result(call, (None,) * (len(shape) + 1))
        place = count_axis(call, "axis", axis, len(shape) + 1)
        return result(call, (*shape[:place], 1, *shape[place:]))


class Squeeze(Reshaped):
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

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The other axes."""
        axes, shape = cls.axes(call), shape_of(call, "input")
        if axes is None or shape is None:
            return result(call, None)
        return result(call, [size for axis, size in enumerate(shape) if axis not in axes])


class _Stated(Kept, abstract=True):
    """Passes its input, of whose shape something is said."""

    class Attrs:
        shape = attr(list[int])
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
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The input's shape, filled in with what is said."""
        shape, stated = shape_of(call, "input"), cls.stated(call)
        if shape is None or stated is None:
            return result(call, stated if shape is None else shape)
        clash = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, stated, strict=False))
        if len(shape) != len(stated) or clash:
            raise call.error("input", f"shape {list(stated)}, as attribute shape says", list(shape))
        return result(call, [b if isinstance(b, int) else a for a, b in zip(shape, stated, strict=True)])


class PlaceholderWithDefault(_Stated):
    """Its input, the default of a graph input that is not fed."""

    class Types:
        dtype = ALL

    class Inputs:
        input = operand("*S", "dtype")

    class Outputs:
        output = operand("*S", "dtype")


class UnravelIndex(OpDef):
    """Flat indices as an index per axis; one row for each axis."""

    class Types:
        Tidx = INDEX

    class Inputs:
        indices = operand(None, "Tidx")
        dims = operand("R", "Tidx")

    class Outputs:
        output = operand(None, "Tidx")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A row for each axis, of the indices' length; a vector for one index."""
        shape, axes = shape_of(call, "indices"), call.sizes.get("R")
        if shape is None:
            return result(call, None, "Tidx")
        if len(shape) > 1:
            raise call.error("indices", "rank 0 or 1", f"rank {len(shape)}")
        return result(call, (axes, *shape), "Tidx")
