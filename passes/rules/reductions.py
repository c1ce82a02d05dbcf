"""Lowering of reductions, and of what is accumulated along an axis."""

from __future__ import annotations

import functools
import math
import operator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import NUMBERS, RawOp
from lstm_lower.passes.formulas import cumulative
from lstm_lower.passes.rules.registry import Node, lowers, rank_of, widened, wrapping

_INT64, _UINT64 = ir.DataType.INT64, ir.DataType.UINT64


def axes_of(call: Call, name: str, of: str) -> tuple[int, ...] | None:
    """The axes that an operand names, as they are written; `None` where they are known at run time only.

    Raises:
        InvalidModelError, InvalidInputError: one is not an axis of the other operand, or is named twice.
    """
    operand, shape = call.operands[name], call.operands[of].shape
    if operand.shape is not None and len(operand.shape) > 1:
        raise call.error(name, "a scalar or a vector", f"shape {list(operand.shape)}")
    if operand.value is None:
        return () if operand.shape == (0,) else None
    axes = tuple(int(axis) for axis in operand.value.reshape(-1))
    if shape is None:
        return axes
    rank = len(shape)
    if any(not -rank <= axis < rank for axis in axes):
        raise call.error(name, f"axes from {-rank} to {rank - 1} (of {of})", list(axes))
    if len({axis % rank for axis in axes}) < len(axes):
        raise call.error(name, "each axis once", list(axes))
    return axes


def reduced(n: Node, b: Builder, op: type[std.Reduction], x: Expr) -> Expr:
    """A reduction of what stands for the node's operand, over the node's axes."""
    axes, keep = axes_of(n.call, "axis", "input"), bool(n.keep_dims)
    rank = None if x.shape is None else len(x.shape)
    if axes is not None:
        # onnxruntime reduces no axis of an empty operand that is counted from behind.
        return x.reduce(op, axes if rank is None else [axis % rank for axis in axes], keepdims=keep)
    if _are_all(n.axis, n.input):
        return b.op(op, x, keepdims=int(keep))
    along: Expr = n.axis.cast(_INT64)
    along = along if along.shape is not None and len(along.shape) == 1 else along.reshape(-1)
    along = along + b.where(along < 0, b.op(std.Size, x.sizes()), 0)
    return b.op(op, x, along, keepdims=int(keep), noop_with_empty_axes=1)


def _are_all(axes: Expr, x: Expr) -> bool:
    """Whether axes are counted out up to the rank of `x`: so TensorFlow writes them where it does not know the rank."""
    facts = axes.builder.facts

    def maker(value: ir.Value | None) -> std.Standard | None:
        view = facts.maker(value)
        while isinstance(view, std.Cast):
            view = facts.maker(view.data)
        return view

    listed = maker(axes.value)
    if not isinstance(listed, std.Range) or (facts.uniform(listed.start), facts.uniform(listed.delta)) != (0, 1):
        return False
    rank = maker(listed.limit)
    sizes = maker(rank.data) if isinstance(rank, std.Size) else None
    return isinstance(sizes, std.Shape) and sizes.data is x.value


class _Reduction(RawOp, abstract=True):
    """Reduces axes."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axes are the input's."""
        axes_of(call, "axis", "input")


class Sum(_Reduction):
    """The sum over axes."""


@lowers(Sum, repeatable=True)
def sum_(n: Node, b: Builder) -> Expr:
    """A ReduceSum."""
    return reduced(n, b, std.ReduceSum, wrapping(n.input))


class Prod(_Reduction, T=NUMBERS):
    """The product over axes."""


@lowers(Prod, repeatable=True)
def prod(n: Node, b: Builder) -> Expr:
    """A ReduceProd."""
    return reduced(n, b, std.ReduceProd, wrapping(n.input))


class Mean(_Reduction):
    """The mean over axes; of integers rounded towards 0."""


@lowers(Mean, repeatable=True)
def mean(n: Node, b: Builder) -> Expr:
    """The sum over the number of elements: onnxruntime makes zeros of the mean of nothing, which is NaN.

    A ReduceMean where there is something.
    """
    x = n.input
    count = _count(n, x)
    if x.dtype.is_floating_point() and isinstance(count, int) and count > 0:
        return reduced(n, b, std.ReduceMean, x)
    total = reduced(n, b, std.ReduceSum, wrapping(x))
    if count is None:
        count = b.op(std.Size, x) / b.op(std.Size, total).maximum(1)
    if x.dtype.is_integer():
        # Of integers the mean of nothing is 0.
        count = max(count, 1) if isinstance(count, int) else count.maximum(1)
        total = total.cast(x.dtype) if x.dtype == _UINT64 else total
    return total / (count if isinstance(count, int) else count.cast(total.dtype))


def _count(n: Node, x: Expr) -> int | Expr | None:
    """How many elements each result is of, as a number or a scalar; `None` where the axes are not known."""
    axes = axes_of(n.call, "axis", "input")
    if axes is None:
        return None
    sizes = [x.size(axis) for axis in axes]
    if all(isinstance(size, int) for size in sizes):
        return math.prod(size for size in sizes if isinstance(size, int))
    product = functools.reduce(operator.mul, sizes)
    assert isinstance(product, Expr)
    return product.reshape()


def _ordered(x: Expr) -> Expr:
    """Numbers in a dtype in which onnxruntime compares, in the same order."""
    if x.dtype == _UINT64:
        return x.cast(_INT64) + -(2**63)
    return x.cast(ir.DataType.INT32) if x.dtype == ir.DataType.BOOL else widened(x)


class Max(_Reduction):
    """The maximum over axes; NaN where an element is NaN."""


class Min(_Reduction):
    """The minimum over axes; NaN where an element is NaN."""


@lowers(Max, Min, repeatable=True)
def extreme(n: Node, b: Builder) -> Expr:
    """A ReduceMax or ReduceMin, to which NaN is added where an element is one: onnxruntime may overlook it."""
    x = _ordered(n.input)
    result = reduced(n, b, std.ReduceMax if n.op is Max else std.ReduceMin, x)
    if x.dtype.is_floating_point():
        result = result + reduced(n, b, std.ReduceSum, b.where(b.op(std.IsNaN, x), x, 0))
    return result + -(2**63) if n.input.dtype == _UINT64 else result


class All(_Reduction):
    """Logical AND over axes."""


class Any(_Reduction):
    """Logical OR over axes."""


@lowers(All, Any, repeatable=True)
def quantified(n: Node, b: Builder) -> Expr:
    """Counts those that hold, or that do not."""
    every = n.op is All
    x = ~n.input if every else n.input
    found = reduced(n, b, std.ReduceSum, x.cast(ir.DataType.INT32)) > 0
    return ~found if every else found


class _Position(RawOp, abstract=True, dimension=""):
    """The index of an extreme element along an axis; of equal ones the first. NaN is passed over."""

    static_operands = ("dimension",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axis is the input's."""
        axes_of(call, "dimension", "input")


class ArgMax(_Position):
    """The index of the largest element along an axis."""


class ArgMin(_Position):
    """The index of the smallest element along an axis."""


@lowers(ArgMax, ArgMin, repeatable=True)
def position(n: Node, b: Builder) -> Expr:
    """An ArgMax or ArgMin of what is a number."""
    x, largest = _ordered(n.input), n.op is ArgMax
    axis = int(n.fixed("dimension"))
    if x.dtype.is_floating_point():
        x = b.where(b.op(std.IsNaN, x), -math.inf if largest else math.inf, x)
    return b.op(std.ArgMax if largest else std.ArgMin, x, axis=axis, keepdims=0)


class _Cumulative(RawOp, abstract=True, axis=""):
    """Accumulates along an axis."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axis is the operand's."""
        axes_of(call, "axis", "x")


class Cumsum(_Cumulative):
    """The cumulative sum along an axis; `exclusive` omits the element itself, `reverse` starts at the end."""


@lowers(Cumsum, repeatable=True)
def cumsum(n: Node, b: Builder) -> Expr:
    """A CumSum."""
    flags = {"exclusive": int(n.exclusive), "reverse": int(n.reverse)}
    return b.op(std.CumSum, wrapping(n.x), n.axis, **flags)


class Cumprod(_Cumulative, T=NUMBERS):
    """The cumulative product along an axis; `exclusive` omits the element itself, `reverse` starts at the end."""

    static_operands = ("axis",)


@lowers(Cumprod, repeatable=True)
def cumprod(n: Node, _: Builder) -> Expr:
    """A Scan along the axis that multiplies; an exclusive product starts with 1."""
    axis, rank = int(n.fixed("axis")), rank_of(n, "x", n.x)
    x = wrapping(n.x)
    along = axis % rank
    if x.size(along) == 0:
        return n.x
    return cumulative.product(x, along, exclusive=n.exclusive, reverse=n.reverse)
