"""Definitions of TensorFlow's ops that join and divide arrays.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from lstm_lower.dims import Dim, agree, starts
from lstm_lower.opdef import Call
from lstm_lower.ops.indexing import check_count
from lstm_lower.ops.raw import RawOp, count_axis, number, numbers, shape_of


class _Joined(RawOp, abstract=True):
    """Several arrays in one.

    Attributes:
        along: the operand that names the axis.
    """

    along = ""

    @classmethod
    def verify(cls, call: Call) -> None:
        """At least one array, N of them, of one rank."""
        check_count(call, "values")
        if not call.lists["values"]:
            raise call.error("values", "at least one tensor", "none")
        shapes = [info.shape for info in call.lists["values"] if info.shape is not None]
        for shape in shapes:
            if len(shape) != len(shapes[0]):
                raise call.error("values", "tensors of one rank", f"shapes {list(shapes[0])} and {list(shape)}")
        if shapes:
            cls.check(call, shapes)

    @classmethod
    def check(cls, call: Call, shapes: Sequence[tuple[Dim, ...]]) -> None:
        """The axis is one of those, and the other sizes are equal."""
        axis = number(call, cls.along)
        if axis is None:
            return
        axis = count_axis(call, cls.along, axis, len(shapes[0]))
        for position, sizes in enumerate(zip(*shapes, strict=True)):
            if position != axis and len({size for size in sizes if isinstance(size, int)}) > 1:
                raise call.error("values", f"equal sizes but along axis {axis}", f"{[list(shape) for shape in shapes]}")


class ConcatV2(_Joined):
    """Joins arrays along an axis."""

    static_operands = ("axis",)
    along = "axis"


class Concat(ConcatV2):
    """ConcatV2 in older graphs: the axis comes first."""

    static_operands = ("concat_dim",)
    along = "concat_dim"


class Pack(_Joined):
    """Joins arrays along a new axis."""

    @classmethod
    def check(cls, call: Call, shapes: Sequence[tuple[Dim, ...]]) -> None:
        """The axis is one of the result, and the shapes are equal."""
        count_axis(call, "attribute axis", call.attributes["axis"], len(shapes[0]) + 1)
        if not all(agree(first, second) for first, second in itertools.combinations(shapes, 2)):
            raise call.error("values", "tensors of one shape", f"{[list(shape) for shape in shapes]}")


class Split(RawOp):
    """Divides an axis into equal parts."""

    static_operands = ("axis",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """At least one part."""
        if call.attributes["num_split"] < 1:
            raise call.error("attribute num_split", "1 or more", f"{call.attributes['num_split']}")
        shape, axis = shape_of(call, "value"), number(call, "axis")
        if shape is not None and axis is not None:
            cls.check(call, shape[count_axis(call, "axis", axis, len(shape))])

    @classmethod
    def check(cls, call: Call, size: Dim) -> None:
        """The axis can be divided so."""
        count = call.attributes["num_split"]
        if isinstance(size, int) and size % count:
            raise call.error("value", f"a size along the axis that {count} divides", f"{size}")


class SplitV(Split, size_splits="N"):
    """Divides an axis into parts of given sizes; -1 stands for what the others leave over."""

    @classmethod
    def check(cls, call: Call, size: Dim) -> None:
        """The parts are as large as the whole."""
        sizes, count = numbers(call, "size_splits"), call.attributes["num_split"]
        if sizes is None:
            return
        rest = size - sum(part for part in sizes if part != -1) if isinstance(size, int) else None
        if len(sizes) != count or sizes.count(-1) > 1 or (rest is not None and rest < 0):
            raise call.error("size_splits", f"{count} sizes that sum up to {size}", f"{sizes}")


class Unpack(RawOp):
    """The slices along an axis, one by one."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """As many as the axis has."""
        shape, count = shape_of(call, "value"), call.attributes["num"]
        if shape is None:
            return
        axis = count_axis(call, "attribute axis", call.attributes["axis"], len(shape))
        if not agree((shape[axis],), (count,)):
            raise call.error("attribute num", f"{shape[axis]}, the size of axis {axis}", f"{count}")


class DynamicPartition(RawOp):
    """Rows sorted into groups by number, each group in their order."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A number for each row."""
        data, rows = shape_of(call, "data"), shape_of(call, "partitions")
        if data is not None and rows is not None and not starts(data, rows):
            raise call.error("data", f"a shape that starts with {list(rows)} (as partitions)", list(data))
