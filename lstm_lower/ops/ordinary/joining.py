"""Definitions of TensorFlow's ops that join and divide arrays.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, agree, starts
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.indexing import check_count
from lstm_lower.ops.ordinary.bases import (
    ALL,
    INDEX,
    at,
    count_axis,
    number,
    numbers,
    result,
    shape_of,
)


class _Joined(OpDef, abstract=True):
    """Several arrays in one.

    Attributes:
        along: the operand that names the axis.
    """

    along = ""

    class Types:
        T = ALL

    class Outputs:
        output = operand(None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """At least one array, N of them, of one rank."""
        check_count(call, "values")
        if not call.lists["values"]:
            raise call.error("values", "at least one tensor", "none")
        cls.output_infos(call)

    @classmethod
    def common(cls, call: Call) -> tuple[list[tuple[Dim, ...]], bool]:
        """The known shapes, and whether they are all known."""
        shapes = [info.shape for info in call.lists["values"]]
        known = [tuple(shape) for shape in shapes if shape is not None]
        for shape in known:
            if len(shape) != len(known[0]):
                raise call.error("values", "tensors of one rank", f"shapes {list(known[0])} and {list(shape)}")
        return known, len(known) == len(shapes)


class ConcatV2(_Joined):
    """Joins arrays along an axis."""

    static_operands = ("axis",)
    along = "axis"

    class Types:
        T = ALL
        Tidx = INDEX

    class Inputs:
        values = operand(None, variadic=True, count="N")
        axis = operand(None, "Tidx")

    class Attrs:
        N = attr(int)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The sizes along the axis are added."""
        shapes, complete = cls.common(call)
        if not shapes:
            return result(call, None)
        axis, rank = number(call, cls.along), len(shapes[0])
        if axis is None:
            return result(call, (None,) * rank)
        axis = count_axis(call, cls.along, axis, rank)
        sizes: list[Dim] = []
        for position, found in enumerate(zip(*shapes, strict=True)):
            known = [size for size in found if isinstance(size, int)]
            if position == axis:
                sizes.append(sum(known) if complete and len(known) == len(found) else None)
            elif len(set(known)) > 1:
                raise call.error("values", f"equal sizes but along axis {axis}", f"{[list(shape) for shape in shapes]}")
            else:
                sizes.append(known[0] if known else found[0])
        return result(call, sizes)


class Concat(ConcatV2):
    """ConcatV2 in older graphs: the axis comes first."""

    static_operands = ("concat_dim",)
    along = "concat_dim"

    class Types:
        T = ALL

    class Inputs:
        concat_dim = operand(None, "int32")
        values = operand(None, variadic=True, count="N")


class Pack(_Joined):
    """Joins arrays along a new axis."""

    class Inputs:
        values = operand(None, variadic=True, count="N")

    class Attrs:
        N = attr(int)
        axis = attr(int, 0)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A shape that all have, with the number of arrays at the axis."""
        shapes, _ = cls.common(call)
        if not shapes:
            return result(call, None)
        axis = count_axis(call, "attribute axis", call.attributes["axis"], len(shapes[0]) + 1)
        sizes: list[Dim] = []
        for found in zip(*shapes, strict=True):
            known = [size for size in found if isinstance(size, int)]
            if len(set(known)) > 1:
                raise call.error("values", "tensors of one shape", f"{[list(shape) for shape in shapes]}")
            sizes.append(known[0] if known else found[0])
        return result(call, (*sizes[:axis], len(call.lists["values"]), *sizes[axis:]))


class Split(OpDef):
    """Divides an axis into equal parts."""

    static_operands = ("axis",)

    class Types:
        T = ALL

    class Inputs:
        axis = operand(None, "int32")
        value = operand(None)

    class Outputs:
        output = operand(None, variadic=True, count="num_split")

    class Attrs:
        num_split = attr(int)

    @classmethod
    def verify(cls, call: Call) -> None:
        """At least one part."""
        if call.attributes["num_split"] < 1:
            raise call.error("attribute num_split", "1 or more", f"{call.attributes['num_split']}")

    @classmethod
    def parts(cls, call: Call, size: Dim) -> list[Dim]:
        """The sizes of the parts of an axis."""
        count = call.attributes["num_split"]
        if isinstance(size, int) and size % count:
            raise call.error("value", f"a size along the axis that {count} divides", f"{size}")
        return [size // count if isinstance(size, int) else size if count == 1 else None] * count

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The operand's shape, divided along the axis."""
        shape, axis = shape_of(call, "value"), number(call, "axis")
        dtype, count = call.types.get("T"), call.attributes["num_split"]
        if shape is None or axis is None:
            return [TensorInfo(dtype, None if shape is None else (None,) * len(shape)) for _ in range(count)]
        axis = count_axis(call, "axis", axis, len(shape))
        return [TensorInfo(dtype, at(shape, axis, size)) for size in cls.parts(call, shape[axis])]


class SplitV(Split):
    """Divides an axis into parts of given sizes; -1 stands for what the others leave over."""

    class Types:
        T = ALL
        Tlen = ("int8", *INDEX)

    class Inputs:
        value = operand(None)
        size_splits = operand("N", "Tlen")
        axis = operand(None, "int32")

    @classmethod
    def parts(cls, call: Call, size: Dim) -> list[Dim]:
        """What `size_splits` says."""
        sizes, count = numbers(call, "size_splits"), call.attributes["num_split"]
        if sizes is None:
            return [None] * count
        rest = size - sum(part for part in sizes if part != -1) if isinstance(size, int) else None
        if len(sizes) != count or sizes.count(-1) > 1 or (rest is not None and rest < 0):
            raise call.error("size_splits", f"{count} sizes that sum up to {size}", f"{sizes}")
        return [rest if part == -1 else part for part in sizes]


class Unpack(OpDef):
    """The slices along an axis, one by one."""

    class Types:
        T = ALL

    class Inputs:
        value = operand(None)

    class Outputs:
        output = operand(None, variadic=True, count="num")

    class Attrs:
        num = attr(int)
        axis = attr(int, 0)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The operand's shape without the axis."""
        shape, dtype, count = shape_of(call, "value"), call.types.get("T"), call.attributes["num"]
        rest: tuple[Dim, ...] | None = None
        if shape is not None:
            axis = count_axis(call, "attribute axis", call.attributes["axis"], len(shape))
            if not agree((shape[axis],), (count,)):
                raise call.error("attribute num", f"{shape[axis]}, the size of axis {axis}", f"{count}")
            rest = (*shape[:axis], *shape[axis + 1 :])
        return [TensorInfo(dtype, rest) for _ in range(count)]


class DynamicPartition(OpDef):
    """Rows sorted into groups by number, each group in their order."""

    class Types:
        T = ALL

    class Inputs:
        data = operand(None)
        partitions = operand(None, "int32")

    class Outputs:
        outputs = operand(None, variadic=True, count="num_partitions")

    class Attrs:
        num_partitions = attr(int)

    @classmethod
    def verify(cls, call: Call) -> None:
        """A number for each row."""
        data, rows = shape_of(call, "data"), shape_of(call, "partitions")
        if data is not None and rows is not None and not starts(data, rows):
            raise call.error("data", f"a shape that starts with {list(rows)} (as partitions)", list(data))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """How many rows a group has is known at run time only."""
        data, rows = shape_of(call, "data"), shape_of(call, "partitions")
        shape = None if data is None or rows is None else (None, *data[len(rows) :])
        return [TensorInfo(call.types.get("T"), shape) for _ in range(call.attributes["num_partitions"])]
