"""Lowering of the ops that fill arrays.

Symbols: R rank of a result.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Scalar, concat
from lstm_lower.graph.values import Dim, broadcast
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, number
from lstm_lower.passes.formulas.kernels import computed, movable
from lstm_lower.passes.formulas.rows import INT64
from lstm_lower.passes.formulas.sizes import wide
from lstm_lower.passes.rules.registry import Node, lowers


def full(sizes: Expr, value: Scalar, dtype: ir.DataType) -> Expr:
    """One number everywhere, in a shape [R]."""
    made = ir.DataType.FLOAT if dtype == ir.DataType.BFLOAT16 else dtype
    return _of_sizes(sizes.builder.fill(value, wide(sizes), made), sizes.entries)


def _of_sizes(x: Expr, sizes: Sequence[Dim] | None) -> Expr:
    """An array that has just these sizes, which may not be negative."""
    return x if sizes is None else x.builder.set_shape(x, sizes)


def expanded(x: Expr, sizes: Expr) -> Expr:
    """X repeated in a shape that it broadcasts to."""
    return _of_sizes(x.builder.op(std.Expand, movable(x), wide(sizes)), sizes.entries)


class Fill(RawOp, dims="R", value=""):
    """One value everywhere."""


@lowers(Fill)
def fill(n: Node, _: Builder) -> Expr:
    """One number where it is known."""
    known, value = n.constant("value"), n.moved("value")
    if known is None:
        return expanded(value, n.dims)
    return full(n.dims, known.reshape(-1)[0], value.dtype)


class ZerosLike(RawOp):
    """Zeros of x's shape."""


class OnesLike(RawOp):
    """Ones of x's shape."""


@lowers(ZerosLike, OnesLike, repeatable=True)
def like(n: Node, b: Builder) -> Expr:
    """Filled in the shape of x."""
    x, value = n.moved("x"), 1 if n.op is OnesLike else 0
    known = [size for size in x.shape or () if isinstance(size, int)]
    sizes = b.ints(*known) if x.shape is not None and len(known) == len(x.shape) else x.sizes()
    return full(sizes, value, x.dtype)


class Empty(RawOp, shape="R"):
    """Room for numbers, which TensorFlow leaves as it finds it unless `init`; here it holds zeros."""


@lowers(Empty, repeatable=True)
def empty(n: Node, _: Builder) -> Expr:
    """Zeros, whether they are asked for or not."""
    return full(n.shape, 0, n.call.attributes["dtype"])


class BroadcastTo(RawOp, shape="R"):
    """Repeated along axes of size 1, and along new ones in front."""


@lowers(BroadcastTo, repeatable=True)
def broadcast_to(n: Node, _: Builder) -> Expr:
    """An Expand."""
    return expanded(n.moved("input"), n.shape)


class BroadcastArgs(RawOp, s0="P", s1="Q"):
    """The shape that operands of two shapes broadcast to."""


@lowers(BroadcastArgs)
def broadcast_args(n: Node, b: Builder) -> Expr:
    """Ones in front of the shorter shape; then of two sizes the one that is not 1."""
    known = broadcast(n.s0.entries, n.s1.entries)
    if known is not None and all(isinstance(size, int) for size in known):
        return b.constant(list(known), n.s0.dtype)
    shapes = [wide(n.s0), wide(n.s1)]
    lengths = [shape.sizes() for shape in shapes]
    rank = lengths[0].maximum(lengths[1])
    padded = []
    for shape, length in zip(shapes, lengths, strict=True):
        ones = b.fill(1, rank - length, INT64)
        padded.append(concat([ones, shape], 0))
    return b.where(padded[0].equals(1), padded[1], padded[0])


class Range(RawOp, start="", limit="", delta=""):
    """start, start + delta, ... before limit."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are steps."""
        if number(call, "delta") == 0:
            raise call.error("delta", "a step other than 0", "0")


@lowers(Range, repeatable=True)
def range_(n: Node, b: Builder) -> Expr:
    """A Range."""
    return b.op(std.Range, *[computed(n.moved(name)) for name in ("start", "limit", "delta")])
