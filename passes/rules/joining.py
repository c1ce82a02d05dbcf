"""Lowering of the ops that join and divide arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from lstm_lower.dims import Dim, agree, starts
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.graph.values import UnknownEntry
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, check_count, count_axis, number, numbers, shape_of
from lstm_lower.passes.formulas.indices import from_front, within
from lstm_lower.passes.formulas.rows import flatten_rows
from lstm_lower.passes.formulas.sizes import Size, entries, wide
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


def _axis(n: Node, operand: str) -> int:
    return int(n.fixed(operand).reshape(-1)[0])


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


@lowers(ConcatV2, Concat, repeatable=True)
def concat_(n: Node, _: Builder) -> Expr:
    """A Concat."""
    return concat(n.all_moved("values"), _axis(n, n.op.along))


class Pack(_Joined):
    """Joins arrays along a new axis."""

    @classmethod
    def check(cls, call: Call, shapes: Sequence[tuple[Dim, ...]]) -> None:
        """The axis is one of the result, and the shapes are equal."""
        count_axis(call, "attribute axis", call.attributes["axis"], len(shapes[0]) + 1)
        if not all(agree(first, second) for first, second in itertools.combinations(shapes, 2)):
            raise call.error("values", "tensors of one shape", f"{[list(shape) for shape in shapes]}")


@lowers(Pack, repeatable=True)
def pack(n: Node, _: Builder) -> Expr:
    """A new axis for each, along which they are joined."""
    axis = int(n.axis)
    return concat([value.unsqueeze(axis) for value in n.all_moved("values")], axis)


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


@lowers(Split, repeatable=True)
def split(n: Node, _: Builder) -> list[Expr]:
    """Equal parts."""
    x, count = n.moved("value"), int(n.num_split)
    return [x] if count == 1 else x.split(count, axis=_axis(n, "axis"))


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


@lowers(SplitV, repeatable=True)
def split_v(n: Node, b: Builder) -> list[Expr]:
    """Parts of the given sizes; what is left over is known at run time, where it is."""
    x, axis = n.moved("value"), _axis(n, "axis")
    given = wide(n.size_splits)
    sizes = entries(given)
    known = given.entries or ()
    if sizes is None or any(isinstance(size, UnknownEntry) for size in known):
        whole = x.size(axis)
        rest = whole - given.maximum(0).sum(0, keepdims=True)
        vector = b.where(given < 0, rest, given)
    else:
        if -1 in known:
            others: Size = 0
            for size in sizes:
                others = others if isinstance(size, int) and size == -1 else size + others
            sizes[known.index(-1)] = x.size(axis) - others
        vector = b.sizes(sizes)
    return b.ops(std.Split, x, vector, outputs=int(n.num_split), axis=axis)


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


@lowers(Unpack, repeatable=True)
def unpack(n: Node, _: Builder) -> list[Expr]:
    """A Gather for each."""
    x = n.moved("value")
    return [x.take(i, axis=int(n.axis)) for i in range(int(n.num))]


class DynamicPartition(RawOp):
    """Rows sorted into groups by number, each group in their order."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A number for each row."""
        data, rows = shape_of(call, "data"), shape_of(call, "partitions")
        if data is not None and rows is not None and not starts(data, rows):
            raise call.error("data", f"a shape that starts with {list(rows)} (as partitions)", list(data))


@lowers(DynamicPartition, repeatable=True)
def dynamic_partition(n: Node, b: Builder) -> list[Expr]:
    """The rows at the places where each number stands."""
    rank = rank_of(n, "partitions", n.partitions)
    rows = flatten_rows(n.moved("data"), rank)
    groups = n.partitions if rank == 1 else n.partitions.reshape(-1)
    groups = within(from_front(groups), int(n.num_partitions))
    found = []
    for part in range(int(n.num_partitions)):
        places = b.op(std.NonZero, groups.equals(part)).reshape(-1)
        found.append(rows.take(places))
    return found
