"""Lowering of the ops on whole arrays.

Symbols: R rank of a result, B batch, C classes.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.dims import agree, starts
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPLEX, COMPUTED, FLOATS, INDEX, RawOp
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.formulas.rows import INT64, reshape_to, turned
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.formulas.special_functions import log1p_of
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


class ScatterNd(
    RawOp, shape="R", T=(*COMPUTED, *COMPLEX, "bool"), Tindices=INDEX, bad_indices_policy=("", "DEFAULT", "ERROR")
):
    """Zeros of a shape, with updates added at the indices in the last axis of `indices`."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The updates' shape starts with that of the indices, less its last axis."""
        indices, updates = call.operands["indices"].shape, call.operands["updates"].shape
        if indices is not None and not indices:
            raise call.error("indices", "rank 1 or more", "rank 0")
        if indices is None or updates is None:
            return
        if not starts(updates, indices[:-1]):
            what = f"a shape that starts with {list(indices[:-1])} (as indices)"
            raise call.error("updates", what, list(updates))


@lowers(ScatterNd)
def scatter_nd(n: Node, b: Builder) -> Expr:
    """An adding ScatterND. Of bool, any."""
    shape, updates = n.shape.cast(INT64), n.updates
    if updates.dtype == ir.DataType.BOOL:
        updates = updates.cast(ir.DataType.INT32)
    places = from_front(n.indices.cast(INT64))
    return b.op(std.ScatterND, b.fill(0, shape, updates.dtype), places, updates, reduction="add")


class EuclideanNorm(RawOp, T=FLOATS):
    """Square root of the sum of squares over axes."""

    static_operands = ("axis",)


@lowers(EuclideanNorm)
def euclidean_norm(n: Node, _: Builder) -> Expr:
    """Square root of the sum of squares; an empty list of axes names none."""
    axes = n.fixed("axis")
    squares = n.input * n.input
    if axes.size:
        squares = squares.sum([int(axis) for axis in axes.reshape(-1)], keepdims=bool(n.keep_dims))
    return squares.sqrt()


class LinSpace(RawOp, start="", stop="", num=""):
    """Numbers at equal distances from start to stop, both included."""


@lowers(LinSpace)
def lin_space(n: Node, b: Builder) -> Expr:
    """Steps from start on; the last number is stop itself, unless it is the only one."""
    last = n.num.cast(INT64) - 1
    numbers = up_to(b, last + 1)
    step = (n.stop - n.start) / last.maximum(1).cast(n.start.dtype)
    values = n.start + numbers.cast(n.start.dtype) * step
    at_end = numbers.equals(last) & (last > 0)
    return b.where(at_end, n.stop, values)


class Rank(RawOp):
    """The number of axes."""


@lowers(Rank)
def rank(n: Node, b: Builder) -> Expr:
    """The length of the shape."""
    if n.input.shape is not None:
        return b.constant(len(n.input.shape), ir.DataType.INT32)
    return b.op(std.Size, n.input.sizes()).cast(ir.DataType.INT32)


class Reverse(RawOp, dims="R"):
    """Reverses the axes for which `dims` is true."""

    static_operands = ("dims",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """One entry of dims for each axis."""
        shape, count = call.operands["tensor"].shape, call.sizes.get("R")
        if shape is not None and isinstance(count, int) and len(shape) != count:
            raise call.error("dims", f"an entry for each of tensor's {len(shape)} axes", f"{count}")


@lowers(Reverse)
def reverse(n: Node, _: Builder) -> Expr:
    """A slice backwards along each axis that is turned round."""
    return turned(n.moved("tensor"), [int(axis) for axis in n.fixed("dims").nonzero()[0]])


class Diag(RawOp, T=COMPUTED):
    """Zeros of shape S + S with the operand, of shape S, on the diagonal."""


@lowers(Diag)
def diag(n: Node, b: Builder) -> Expr:
    """The flattened operand where row and column are the same."""
    flat = n.diagonal.reshape(-1)
    numbers = up_to(b, b.op(std.Size, flat))
    table = b.where(numbers.unsqueeze(1).equals(numbers.unsqueeze(0)), flat, 0)
    shape = n.diagonal.sizes()
    return reshape_to(table, concat([shape, shape], 0))


class DiagPart(RawOp, T=COMPUTED):
    """The diagonal of an operand of shape S + S, of shape S."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The shape is one shape twice."""
        shape = call.operands["input"].shape
        if shape is None:
            return
        half = len(shape) // 2
        if not shape or not agree(shape[:half], shape[half:]):
            raise call.error("input", "a shape of two equal halves", list(shape))


@lowers(DiagPart)
def diag_part(n: Node, b: Builder) -> Expr:
    """Every (size + 1)-th element."""
    shape = n.input.sizes()
    half = b.op(std.Div, shape.sizes(), b.ints(2)) if n.input.shape is None else len(n.input.shape) // 2
    shape = shape.slice(0, half, axis=0)
    size = b.op(std.ReduceProd, shape, keepdims=1)
    places = up_to(b, size) * (size + 1)
    return reshape_to(n.input.reshape(-1).take(places), shape)


class InTopK(RawOp, predictions="B C", targets="B"):
    """Whether fewer than k classes have a larger prediction than the target; false where that cannot be said."""


class InTopKV2(RawOp, predictions="B C", targets="B", k=""):
    """InTopK with k as an operand."""


@lowers(InTopK, InTopKV2)
def in_top_k(n: Node, b: Builder) -> Expr:
    """Counts the classes ahead of the target, where all are finite and the target is one of them."""
    scores, targets = n.predictions, n.targets.cast(INT64).unsqueeze(1)
    classes = up_to(b, scores.sizes().take(1))
    hot = targets.equals(classes)
    score = b.where(hot, scores, 0).sum(1, keepdims=True)
    ahead = (scores > score).cast(INT64).sum(1)
    # A class is missing if none is hot; a comparison with NaN is false.
    finite = scores.abs() < math.inf
    faults = (~finite).cast(INT64).sum(1)
    known = (hot.cast(INT64).sum(1) > 0) & (faults < 1)
    k = ahead.like(n.k) if isinstance(n.k, int) else n.k.cast(INT64)
    return known & (ahead < k)


class UniqueV2(RawOp, axis="A", T=COMPUTED):
    """The different slices along an axis, in the order of their first occurrence, and which one each slice is."""

    static_operands = ("axis",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """A vector needs no axis."""
        shape, count = call.operands["x"].shape, call.sizes.get("A")
        if isinstance(count, int) and count > 1:
            raise call.error("axis", "one entry at most", f"{count}")
        if shape is not None and count == 0 and len(shape) != 1:
            raise call.error("axis", f"an entry for x of rank {len(shape)}", "none")
        if shape is not None and (axis := call.operands["axis"].value) is not None:
            for entry in axis.ravel().tolist():
                if not -len(shape) <= entry < len(shape):
                    raise call.error("axis", f"an axis of x of rank {len(shape)}", f"{entry}")


@lowers(UniqueV2)
def unique(n: Node, _: Builder) -> list[Expr]:
    """The slices along the axis, a vector's elements without one."""
    axis = n.fixed("axis")
    return unique_slices(n.x, int(axis[0]) if axis.size else 0)


def unique_slices(x: Expr, along: int) -> list[Expr]:
    """ONNX's Unique, in int64 for integers: onnxruntime has it for few dtypes."""
    b = x.builder
    values = x.cast(INT64) if x.dtype.is_integer() else x
    y, _, inverse, counts = b.ops(std.Unique, values, outputs=4, axis=along, sorted=0)
    for value, dtype in ((y, values.dtype), (inverse, INT64), (counts, INT64)):
        value.value.type = ir.TensorType(dtype)
    return [y, inverse, counts]


class CumulativeLogsumexp(RawOp, axis=""):
    """log of the running sum of exp(x) along an axis, without overflow."""

    static_operands = ("axis",)


@lowers(CumulativeLogsumexp)
def cumulative_logsumexp(n: Node, b: Builder) -> Expr:
    """A Scan along the axis that adds in log space; an exclusive sum starts with the log of nothing."""
    axis = n.fixed("axis")
    rank_ = rank_of(n, "x", n.x)
    along = int(axis) % rank_
    order = [along, *(other for other in range(rank_) if other != along)]
    back = [order.index(position) for position in range(rank_)]
    steps = n.x.transpose(*order)
    start = b.fill(-math.inf, [steps.size(position) for position in range(1, rank_)], steps.dtype)

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        total = _log_add(states[0], inputs[0])
        return [total], [states[0] if n.exclusive else total]

    _, (sums,) = b.scan(body, states=[start], inputs=[steps], reverse=bool(n.reverse))
    return sums.transpose(*back)


def _log_add(x: Expr, y: Expr) -> Expr:
    """log(exp(x) + exp(y)); two infinite numbers have no difference."""
    b = x.builder
    distance = b.where(x.equals(y), 0, (x - y).abs())
    return x.maximum(y) + log1p_of((-distance).exp())
