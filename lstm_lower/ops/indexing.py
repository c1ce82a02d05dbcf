"""Definitions of TensorFlow's ops that move, place and count elements in gradient graphs.

Symbols: R rank of a result, N entries of a slice specification.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, starts, unknown_sizes
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import ANY

INDEX = ("int32", "int64")


def said_shape(call: Call) -> tuple[Dim, ...] | None:
    """The shape that the operand `shape`, of R sizes, says."""
    value, rank = call.operands["shape"].value, call.sizes.get("R")
    if value is not None:
        return tuple(int(size) for size in value)
    return unknown_sizes(rank)


class StridedSliceGrad(OpDef):
    """Gradient of x[begin:end:strides]: zeros of x's shape with dy in the slice's place."""

    forward = "StridedSlice"
    static_sizes = ("R", "N")
    static_operands = ("strides",)

    class Types:
        T = ANY
        Index = INDEX

    class Inputs:
        shape = operand("R", "Index")
        begin = operand("N", "Index")
        end = operand("N", "Index")
        strides = operand("N", "Index")
        dy = operand(None)

    class Outputs:
        output = operand(None)

    class Attrs:
        begin_mask = attr(int, 0)
        end_mask = attr(int, 0)
        ellipsis_mask = attr(int, 0)
        new_axis_mask = attr(int, 0)
        shrink_axis_mask = attr(int, 0)

    @classmethod
    def verify(cls, call: Call) -> None:
        """One ellipsis at most, and no stride of 0."""
        if call.attributes["ellipsis_mask"].bit_count() > 1:
            raise call.error("attribute ellipsis_mask", "one bit at most", bin(call.attributes["ellipsis_mask"]))
        strides = call.operands["strides"].value
        if strides is not None and (strides == 0).any():
            raise call.error("strides", "no stride of 0", strides.tolist())

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The output has the shape that the operand `shape` says."""
        return [TensorInfo(call.types.get("T"), said_shape(call))]


class MirrorPadGrad(OpDef):
    """Gradient of a mirrored padding: the padding's elements are added to those that they mirror."""

    forward = "MirrorPad"

    class Types:
        T = ("float16", "bfloat16", "float32", "float64")
        Tpaddings = INDEX

    class Inputs:
        input = operand(None)
        paddings = operand("R 2", "Tpaddings")

    class Outputs:
        output = operand(None)

    class Attrs:
        mode = attr(str, choices=("REFLECT", "SYMMETRIC"))

    @classmethod
    def verify(cls, call: Call) -> None:
        """Paddings are given for every axis of the input."""
        shape, rank = call.operands["input"].shape, call.sizes.get("R")
        if shape is not None and isinstance(rank, int) and len(shape) != rank:
            raise call.error("paddings", f"a row for each of input's {len(shape)} axes", f"{rank} rows")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The input's shape less the paddings."""
        shape, paddings = call.operands["input"].shape, call.operands["paddings"].value
        rank = len(shape) if shape is not None else call.sizes.get("R")
        dims: tuple[Dim, ...] | None = unknown_sizes(rank)
        if shape is not None and paddings is not None:
            dims = tuple(
                size - int(row.sum()) if isinstance(size, int) else (None if row.any() else size)
                for size, row in zip(shape, paddings, strict=True)
            )
        return [TensorInfo(call.types.get("T"), dims)]


class BroadcastGradientArgs(OpDef):
    """The axes over which the gradients of a broadcast operation's two operands are summed."""

    class Types:
        T = INDEX

    class Inputs:
        s0 = operand("P")
        s1 = operand("Q")

    class Outputs:
        r0 = operand("U")
        r1 = operand("V")


def check_count(call: Call, name: str) -> None:
    """Verifies that the attribute N, where it is given, is the number of a variadic operand's tensors.

    Raises:
        InvalidModelError, InvalidInputError: it is another number.
    """
    given = call.attributes["N"]
    count = len(call.lists[name])
    if given not in (0, count):
        raise call.error("attribute N", f"{count}, the number of tensors of {name}", given)


class ShapeN(OpDef):
    """The shapes of several tensors."""

    class Types:
        T = ANY
        out_type = INDEX

    class Inputs:
        input = operand(None, variadic=True)

    class Outputs:
        output = operand(None, "out_type", variadic=True)

    class Attrs:
        N = attr(int, 0)
        out_type = attr(int, int(DType.INT32), choices=(int(DType.INT32), int(DType.INT64)))

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the outputs' dtype to the attribute; N must be the number of operands."""
        check_count(call, "input")
        call.types["out_type"] = DType(call.attributes["out_type"])

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A vector as long as the operand's rank for each."""
        shapes = [info.shape for info in call.lists["input"]]
        return [TensorInfo(call.types["out_type"], (None if shape is None else len(shape),)) for shape in shapes]


class ConcatOffset(OpDef):
    """Where each operand of a concatenation starts in its result."""

    class Types:
        shape_type = INDEX

    class Inputs:
        concat_dim = operand("", "int32")
        shape = operand(None, "shape_type", variadic=True)

    class Outputs:
        offset = operand(None, "shape_type", variadic=True)

    class Attrs:
        N = attr(int, 0)

    @classmethod
    def verify(cls, call: Call) -> None:
        """N must be the number of shapes."""
        check_count(call, "shape")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Vectors of the shapes' length."""
        return [TensorInfo(call.types.get("shape_type"), info.shape) for info in call.lists["shape"]]


class DynamicStitch(OpDef):
    """Interleaves the rows of several tensors by index; among equal indices the last one wins, gaps are zeros."""

    class Types:
        T = ANY

    class Inputs:
        indices = operand(None, "int32", variadic=True)
        data = operand(None, variadic=True)

    class Outputs:
        merged = operand(None)

    class Attrs:
        N = attr(int, 0)

    @classmethod
    def verify(cls, call: Call) -> None:
        """As many data as indices, and each data's leading axes as its indices'."""
        pairs = cls.pairs(call)
        for number, (indices, data) in enumerate(pairs):
            if indices.shape is None or data.shape is None:
                continue
            if not starts(data.shape, indices.shape):
                what = f"a shape that starts with {list(indices.shape)} (as indices[{number}])"
                raise call.error(f"data[{number}]", what, list(data.shape))

    @classmethod
    def pairs(cls, call: Call) -> list[tuple[TensorInfo, TensorInfo]]:
        """Indices and data that belong together."""
        indices, data = call.lists["indices"], call.lists["data"]
        if not indices or len(indices) != len(data):
            raise call.error("data", "as many operands as indices, at least one", f"{len(data)} and {len(indices)}")
        return list(zip(indices, data, strict=True))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """One row per index up to the largest."""
        dims: tuple[Dim, ...] | None = None
        pairs = cls.pairs(call)
        for indices, data in pairs:
            if indices.shape is not None and data.shape is not None:
                dims = (None, *data.shape[len(indices.shape) :])
        if dims is not None and all(indices.value is not None for indices, _ in pairs):
            largest = [
                int(indices.value.max()) for indices, _ in pairs if indices.value is not None and indices.value.size
            ]
            dims = (max(largest, default=-1) + 1, *dims[1:])
        return [TensorInfo(call.types.get("T"), dims)]


class ParallelDynamicStitch(DynamicStitch):
    """DynamicStitch without an order among equal indices; here, too, the last one wins."""
