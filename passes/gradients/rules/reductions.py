"""Gradients of reductions, and of operators that accumulate or search along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.rows import flatten_rows, reshape_to, tail_of
from lstm_lower.passes.formulas.sizes import up_to, wide
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    Rule,
    differentiates,
    expanded_like,
    reshaped_like,
    shape_of,
    stops,
    summed,
)
from lstm_lower.passes.gradients.rules.arrays import around

# What a step of a Scan makes of states and one row of each sequence.
Step = Callable[[Sequence[Expr], Sequence[Expr]], tuple[list[Expr], list[Expr]]]

stops(std.Arg, std.Hardmax)


class _Reduced:
    """A reduction's operand and the axes that go, known or only known at run time."""

    def __init__(self, op: std.Reduction, b: Builder) -> None:
        self.op, self.b = op, b
        self.axes = op.axes

    def kept(self, x: Expr) -> Expr:
        """A value of the result's shape with the reduced axes at size 1."""
        if self.op.keepdims or self.axes == ():
            return x
        return x.unsqueeze(*self.axes) if self.axes else reshape_to(x, self._kept_sizes())

    def _kept_sizes(self) -> Expr:
        """The operand's sizes with 1 in place of those that are reduced."""
        sizes = shape_of(self.b.operand(self.op))
        rank = sizes.sizes()
        given = self.b.op(std.Expand, self.b.ints(1), rank)
        axes = self._given_axes()
        if axes is None:
            return given
        numbers = self.b.where(axes < 0, axes + rank, axes)
        ones = self.b.op(std.Expand, self.b.ints(1), numbers.sizes())
        some = self.b.op(std.ScatterElements, sizes, numbers, ones, axis=0)
        if self.op.attribute("noop_with_empty_axes", 0):
            return some
        # Without axes all are reduced.
        return self.b.where(self.b.op(std.Size, axes).equals(0), given, some)

    def _given_axes(self) -> Expr | None:
        written = self.op.written_axes
        return self.b.optional(self.op, 1) if written is None else self.b.ints(*written) if written else None

    def total(self, x: Expr) -> Expr:
        """The sum of a value of the operand's shape, with the reduced axes at size 1."""
        if self.axes is not None:
            return summed(x, self.axes, keepdims=True)
        noop = int(self.op.attribute("noop_with_empty_axes", 0))
        return self.b.op(std.ReduceSum, widened(x), self._given_axes(), noop_with_empty_axes=noop).cast(x.dtype)

    def count(self, x: Expr) -> Expr | float:
        """The number of elements that become one, a number or a scalar of the operand's dtype."""
        if self.axes is None:
            size = self.b.op(std.Size, x) / self.b.op(std.Size, self.b.output(self.op)).maximum(1)
            return size.cast(x.dtype)
        return count_of(x, self.axes)


def count_of(x: Expr, axes: Sequence[int]) -> Expr | float:
    """The number of elements along some axes, a number or a tensor of one element in the dtype of `x`."""
    count: Expr | int = 1
    for axis in axes:
        size = x.size(axis)
        count = size * count if isinstance(size, int) and isinstance(count, int) else x.builder.ints(1) * size * count
    return float(count) if isinstance(count, int) else count.cast(x.dtype)


def _zero(y: Expr) -> Expr:
    """Whether a norm is zero, which one that is NaN is not."""
    return y.equals(0)


# Of the operand x, the result y and its gradient dy, both with the reduced axes, the operand's gradient.
Slope = Callable[[Expr, Expr, Expr], Expr]

_SLOPES: dict[type[std.Reduction], Slope] = {
    std.ReduceSum: lambda x, y, dy: dy,
    std.ReduceSumSquare: lambda x, y, dy: x * (dy * 2),
    std.ReduceL1: lambda x, y, dy: x.builder.op(std.Sign, x) * dy,
    # At zero PyTorch's norm has the gradient 0.
    std.ReduceL2: lambda x, y, dy: x * y.builder.where(_zero(y), 0, dy / y.builder.where(_zero(y), 1, y)),
    std.ReduceLogSum: lambda x, y, dy: dy / y.exp(),
}


def _reduction(slope: Slope) -> Rule:
    def rule(op: std.Reduction, b: Builder, dys: Cotangents) -> Gradients:
        reduced = _Reduced(op, b)
        return [expanded_like(slope(b.operand(op), reduced.kept(b.output(op)), reduced.kept(dys[0])), b.operand(op))]

    return rule


for _view, _slope in _SLOPES.items():
    differentiates(_view)(_reduction(_slope))


# By how much the shares of a sum may miss 1 for the rounding of its logarithm, which is then up to 2^17 in float32.
_ROUNDING = 1 / 64


@differentiates(std.ReduceLogSumExp)
def _log_sum_exp(op: std.ReduceLogSumExp, b: Builder, dys: Cotangents) -> Gradients:
    """Shares of the sum, exp(x - y); 1 each, as in PyTorch, of equal elements beside which y has no digits of it."""
    reduced, x = _Reduced(op, b), b.operand(op)
    shares = (x - reduced.kept(b.output(op))).exp()
    total = reduced.total(shares)
    total = b.where((total - 1).abs() < _ROUNDING, total, 1)
    return expanded_like(shares * (reduced.kept(dys[0]) / total), x)


@differentiates(std.ReduceMean)
def _mean(op: std.ReduceMean, b: Builder, dys: Cotangents) -> Gradients:
    reduced = _Reduced(op, b)
    return expanded_like(reduced.kept(dys[0]) / reduced.count(b.operand(op)), b.operand(op))


@differentiates(std.ReduceMax, std.ReduceMin)
def _extreme(op: std.Reduction, b: Builder, dys: Cotangents) -> Gradients:
    """Equal shares of the elements that are the result; NaN, as in PyTorch, where that is NaN and so equals none."""
    reduced, x = _Reduced(op, b), b.operand(op)
    y = reduced.kept(b.output(op))
    chosen = x.equals(y)
    share = reduced.kept(dys[0]) / reduced.total(chosen.cast(dys[0].dtype))
    return expanded_like(b.where(chosen, share, b.where(y.equals(y), 0, y)), x)


@differentiates(std.ReduceProd)
def _product(op: std.ReduceProd, b: Builder, dys: Cotangents) -> Gradients:
    """The product of all others, which a quotient by an element of zero could not tell."""
    reduced, x = _Reduced(op, b), b.operand(op)
    if reduced.axes == ():
        return dys[0]
    rows, back = _rows(reduced, op, b) if reduced.axes else _sorted_rows(reduced, op, b)
    others = _products_before(rows(x), reverse=False) * _products_before(rows(x), reverse=True)
    return back(rows(expanded_like(reduced.kept(dys[0]), x)) * others)


def _rows(reduced: _Reduced, op: std.Standard, b: Builder) -> tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]:
    """The operand's elements in rows, each of one element for each result, and the way back."""
    rank, axes = op.known_rank(), reduced.axes or ()
    order = [*axes, *(axis for axis in range(rank) if axis not in axes)]

    def forth(x: Expr) -> Expr:
        return flatten_rows(b.transpose(x, order), len(axes))

    def back(rows: Expr) -> Expr:
        sizes = shape_of(b.operand(op))
        whole = reshape_to(rows, sizes.take(b.ints(*order)))
        turned = sorted(range(rank), key=order.__getitem__)
        return reshaped_like(b.transpose(whole, turned), b.operand(op))

    return forth, back


def _sorted_rows(
    reduced: _Reduced, op: std.Standard, b: Builder
) -> tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]:
    """The same for axes that are only known at run time: the elements sorted by the result that they go into."""
    x, y = b.operand(op), b.output(op)
    size, count = b.op(std.Size, x).reshape(1), b.op(std.Size, y).reshape(1)
    numbers = expanded_like(reduced.kept(reshape_to(up_to(b, count), shape_of(y))), x)
    order = b.ops(std.TopK, numbers.reshape(-1), size, outputs=2, largest=0)[1]
    sizes = b.concat([count, size / count.maximum(1)], 0)

    def forth(v: Expr) -> Expr:
        return reshape_to(v.reshape(-1).take(order), sizes).transpose(1, 0)

    def back(rows: Expr) -> Expr:
        flat = rows.transpose(1, 0).reshape(-1)
        return reshaped_like(b.op(std.ScatterElements, flat, order, flat, axis=0), x)

    return forth, back


def _products_before(rows: Expr, *, reverse: bool) -> Expr:
    """For each row the product of those before it, or behind it."""
    one = rows.builder.op(std.Expand, rows.like(1), tail_of(rows, 1))

    def step(states: Sequence[Expr], inputs: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        return [states[0] * inputs[0]], [states[0]]

    return _scanned(step, one, [rows], reverse=reverse)


def _scanned(step: Step, start: Expr, sequences: Sequence[Expr], *, reverse: bool) -> Expr:
    """What a Scan makes; it runs one step more than there are rows, since runtimes refuse one of none."""
    b = start.builder
    row = start.unsqueeze(0)
    longer = [b.concat([row, x] if reverse else [x, row], 0) for x in sequences]
    _, (made,) = b.scan(step, states=[start], inputs=longer, reverse=reverse)
    return made.slice(1, END, axis=0) if reverse else made.slice(0, -1, axis=0)


@differentiates(std.Softmax)
def _softmax(op: std.Softmax, b: Builder, dys: Cotangents) -> Gradients:
    y = _of_chosen_rows(op, b, dys)
    return (dys[0] - summed(dys[0] * y, [op.written_axis], keepdims=True)) * y


@differentiates(std.LogSoftmax)
def _log_softmax(op: std.LogSoftmax, b: Builder, dys: Cotangents) -> Gradients:
    y = _of_chosen_rows(op, b, dys)
    return dys[0] - y.exp() * summed(dys[0], [op.written_axis], keepdims=True)


def _of_chosen_rows(op: std.AlongAxis, b: Builder, dys: Cotangents) -> Expr:
    """The result, with zeros in the rows for which something else is chosen behind it.

    A row that a mask hides as a whole is NaN, and attention puts zeros in its place. Its gradient is zero, not NaN
    times zero.
    """
    y, facts, axis = b.output(op), b.facts, op.axis
    choice = facts.maker(dys[0].value)
    while isinstance(choice, std.Cast):
        choice = facts.maker(choice.data)
    if not isinstance(choice, std.Where) or axis is None:
        return y
    sizes = facts.shape(choice.condition)
    if sizes is None or sizes[axis - op.known_rank() :][:1] != (1,):
        return y
    condition = b.wrap(choice.condition)
    if facts.uniform(choice.no) == 0:
        return b.where(condition, y, 0)
    return b.where(condition, 0, y) if facts.uniform(choice.yes) == 0 else y


@differentiates(std.CumSum)
def _cumsum(op: std.CumSum, b: Builder, dys: Cotangents) -> Gradients:
    """The cumulative sum from the other end."""
    return b.op(std.CumSum, dys[0], b.operand(op, 1), exclusive=op.exclusive, reverse=1 - op.reverse)


@differentiates(std.CumProd)
def _cumprod(op: std.CumProd, b: Builder, dys: Cotangents) -> Gradients:
    """For each element the product of those before it times the sum of dy times the products of those behind it."""
    x, reverse = b.operand(op), bool(op.reverse)
    sizes = b.sizes(around(x, wide(b.operand(op, 1)).reshape(1) if op.axis is None else op.axis))
    rows, dy = (reshape_to(v, sizes).transpose(1, 0, 2) for v in (x, dys[0]))
    zero = b.op(std.Expand, rows.like(0), tail_of(rows, 1))

    def step(states: Sequence[Expr], inputs: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        """What lies behind an element; an exclusive product's own gradient only counts for elements before it."""
        (behind,), (x, d) = states, inputs
        if op.exclusive:
            return [behind * x + d], [behind]
        return [(behind + d) * x], [behind + d]

    behind = _scanned(step, zero, [rows, dy], reverse=not reverse)
    dx = behind * _products_before(rows, reverse=reverse)
    return reshaped_like(dx.transpose(1, 0, 2), x)
