"""Definitions of TensorFlow's ops that move, place and count elements in gradient graphs.

Symbols: R rank of a result, N entries of a slice specification.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, starts, unknown_sizes
from lstm_lower.opdef import Call, TensorInfo
from lstm_lower.ops.raw import FLOATS, RawOp


def said_shape(call: Call) -> tuple[Dim, ...] | None:
    """The shape that the operand `shape`, of R sizes, says."""
    value, rank = call.operands["shape"].value, call.sizes.get("R")
    if value is not None:
        return tuple(int(size) for size in value)
    return unknown_sizes(rank)


class StridedSliceGrad(RawOp, shape="R", begin="N", end="N", strides="N"):
    """Gradient of x[begin:end:strides]: zeros of x's shape with dy in the slice's place."""

    forward = "StridedSlice"
    static_sizes = ("R", "N")
    static_operands = ("strides",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """One ellipsis at most, and no stride of 0."""
        if call.attributes["ellipsis_mask"].bit_count() > 1:
            raise call.error("attribute ellipsis_mask", "one bit at most", bin(call.attributes["ellipsis_mask"]))
        strides = call.operands["strides"].value
        if strides is not None and (strides == 0).any():
            raise call.error("strides", "no stride of 0", strides.tolist())


class MirrorPadGrad(RawOp, paddings="R 2", T=FLOATS):
    """Gradient of a mirrored padding: the padding's elements are added to those that they mirror."""

    forward = "MirrorPad"

    @classmethod
    def verify(cls, call: Call) -> None:
        """Paddings are given for every axis of the input."""
        shape, rank = call.operands["input"].shape, call.sizes.get("R")
        if shape is not None and isinstance(rank, int) and len(shape) != rank:
            raise call.error("paddings", f"a row for each of input's {len(shape)} axes", f"{rank} rows")


class BroadcastGradientArgs(RawOp, s0="P", s1="Q"):
    """The axes over which the gradients of a broadcast operation's two operands are summed."""


def check_count(call: Call, name: str) -> None:
    """Verifies that the attribute N, where it is given, is the number of a variadic operand's tensors.

    Raises:
        InvalidModelError, InvalidInputError: it is another number.
    """
    given = call.attributes["N"]
    count = len(call.lists[name])
    if given not in (0, count):
        raise call.error("attribute N", f"{count}, the number of tensors of {name}", given)


class ShapeN(RawOp):
    """The shapes of several tensors."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """N must be the number of operands."""
        check_count(call, "input")


class ConcatOffset(RawOp, concat_dim=""):
    """Where each operand of a concatenation starts in its result."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """N must be the number of shapes."""
        check_count(call, "shape")


class DynamicStitch(RawOp):
    """Interleaves the rows of several tensors by index; among equal indices the last one wins, gaps are zeros."""

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


class ParallelDynamicStitch(DynamicStitch):
    """DynamicStitch without an order among equal indices; here, too, the last one wins."""
