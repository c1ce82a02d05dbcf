"""Definitions of TensorFlow's ops that find, count and order elements.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.arrays import UniqueV2
from lstm_lower.ops.ordinary.bases import (
    ALL,
    INDEX,
    ORDERED,
    index_attr,
    number,
    shape_of,
)


class Where(OpDef):
    """The indices of all nonzero elements, one element per row."""

    class Types:
        T = ALL

    class Inputs:
        condition = operand(None)

    class Outputs:
        index = operand(None, "int64")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """How many there are is known at run time only."""
        shape = shape_of(call, "condition")
        return [TensorInfo(DType.INT64, (None, None if shape is None else len(shape)))]


class Unique(OpDef):
    """The different elements of a vector, in the order of their first occurrence, and which one each element is."""

    class Types:
        T = ORDERED
        out_idx = INDEX

    class Inputs:
        x = operand("N")

    class Outputs:
        y = operand(None)
        idx = operand("N", "out_idx")

    class Attrs:
        out_idx = index_attr()

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """How many elements differ is known at run time only."""
        index = call.attributes["out_idx"]
        return [TensorInfo(call.types.get("T"), (None,)), TensorInfo(index, (call.sizes.get("N"),))]


class UniqueWithCounts(Unique):
    """Unique, and how often each element occurs."""

    class Outputs(Unique.Outputs):
        count = operand(None, "out_idx")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """One count for each different element."""
        return [*super().output_infos(call), TensorInfo(call.attributes["out_idx"], (None,))]


class UniqueWithCountsV2(UniqueV2):
    """UniqueV2, and how often each slice occurs."""

    class Outputs(UniqueV2.Outputs):
        count = operand(None, "out_idx")

    class Attrs:
        out_idx = index_attr()

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """One count for each different slice."""
        return [*super().output_infos(call), TensorInfo(call.types["out_idx"], (None,))]


class ListDiff(OpDef):
    """The elements of x that are not in y, in their order, and their indices in x."""

    class Types:
        T = ALL
        out_idx = INDEX

    class Inputs:
        x = operand("N")
        y = operand("M")

    class Outputs:
        out = operand(None)
        idx = operand(None, "out_idx")

    class Attrs:
        out_idx = index_attr()

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """How many there are is known at run time only."""
        return [TensorInfo(call.types.get("T"), (None,)), TensorInfo(call.attributes["out_idx"], (None,))]


class _Largest(OpDef, abstract=True):
    """The largest elements along the last axis, and their indices; of equal elements the first."""

    class Types:
        T = ORDERED

    class Inputs:
        input = operand("*S N")

    class Outputs:
        values = operand(None)
        indices = operand(None, "int32")

    class Attrs:
        sorted = attr(bool, True)

    @classmethod
    def taken(cls, call: Call) -> int | None:
        """How many, where that is known."""
        return call.attributes["k"] if "k" in call.attributes else number(call, "k")

    @classmethod
    def verify(cls, call: Call) -> None:
        """Not more than there are."""
        size, count = call.sizes.get("N"), cls.taken(call)
        if count is not None and (count < 0 or (isinstance(size, int) and count > size)):
            raise call.error("k", f"0 to {'all' if size is None else size}", f"{count}")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The input's shape with k at the last axis."""
        shape = shape_of(call, "input")
        dims = None if shape is None else (*shape[:-1], cls.taken(call))
        return [TensorInfo(call.types.get("T"), dims), TensorInfo(cls.index(call), dims)]

    @classmethod
    def index(cls, call: Call) -> DType:
        """The dtype of the places."""
        return DType.INT32


class TopK(_Largest):
    """The k largest elements along the last axis, and their indices; of equal elements the first."""

    class Attrs:
        k = attr(int)
        sorted = attr(bool, True)


class TopKV2(_Largest):
    """TopK with k as an operand."""

    class Types:
        T = ORDERED
        Tk = ("int16", *INDEX)
        index_type = ("int16", *INDEX)

    class Inputs(_Largest.Inputs):
        k = operand("", "Tk")

    class Outputs:
        values = operand(None)
        indices = operand(None, "index_type")

    class Attrs:
        sorted = attr(bool, True)
        index_type = attr(DType, DType.INT32, choices=(DType.INT16, DType.INT32, DType.INT64))

    @classmethod
    def index(cls, call: Call) -> DType:
        """The dtype that the attribute says."""
        found: DType = call.attributes["index_type"]
        return found


class NthElement(OpDef):
    """The n-th smallest element along the last axis, or the n-th largest; the first has number 0."""

    class Types:
        T = ORDERED

    class Inputs:
        input = operand("*S N")
        n = operand("", "int32")

    class Outputs:
        values = operand("*S")

    class Attrs:
        reverse = attr(bool, False)
