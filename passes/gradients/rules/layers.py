"""Gradients of normalizations and of dropout.

Of a normalization the part that flows through mean and deviation is subtracted from the result's gradient; those
without a rule here are decomposed, see `passes/decompositions/normalization.py`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.moments import per_channel
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.formulas.sizes import Size, divided
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    demanded_output,
    differentiates,
    reshaped_like,
    unbroadcast,
)
from lstm_lower.passes.gradients.rules.arrays import around
from lstm_lower.passes.gradients.rules.reductions import count_of

# What LayerNormalization computes in float32, whose mean and deviation are results of it.
_STASHED = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _mean(x: Expr, axes: Sequence[int]) -> Expr:
    return x.reduce(std.ReduceMean, axes)


def _inverse(variance: Expr, epsilon: float) -> Expr:
    return variance.builder.op(std.Reciprocal, (variance + epsilon).sqrt())


class _Normalised:
    """An operand without its mean over some axes, divided by its deviation.

    Attributes:
        value: the result.
        mean: with the axes at size 1, and
        inverse: the deviation's inverse.
    """

    def __init__(self, x: Expr, axes: Sequence[int], mean: Expr, inverse: Expr) -> None:
        self._x = x
        self._axes = axes
        self.mean = mean
        self.inverse = inverse
        self.value = (x - mean) * inverse

    @classmethod
    def of(cls, x: Expr, axes: Sequence[int], epsilon: float) -> _Normalised:
        """Of an operand."""
        mean = _mean(x, axes)
        centred = x - mean
        return cls(x, axes, mean, _inverse(_mean(centred * centred, axes), epsilon))

    def back(self, dy: Expr) -> Expr:
        """The operand's gradient from that of the result."""
        return self.inverse * (dy - _mean(dy, self._axes) - self.value * _mean(dy * self.value, self._axes))

    def back_from_moments(self, d_mean: Expr | None, d_inverse: Expr | None) -> Expr | None:
        """The operand's gradient from those of the mean and of the deviation's inverse."""
        total: Expr | None = None
        if d_mean is not None:
            total = d_mean
        if d_inverse is not None:
            slope = -(d_inverse * self.inverse * self.inverse) * self.value
            total = slope if total is None else total + slope
        return None if total is None else total / count_of(self._x, self._axes)


def _sum(first: Expr, second: Expr | None) -> Expr:
    return first if second is None else first + second


def _from(
    op: std.AlongAxis,
) -> list[int]:
    """All axes from the operator's on."""
    axis = op.written_axis
    return list(range(axis, 0)) if axis < 0 else list(range(axis, op.known_rank()))


class _Rows:
    """How a value lies while it is normalised over its last axes: as it is, or where its rank is open as rows.

    Attributes:
        axes: the axes that are normalised.
    """

    def __init__(self, op: std.AlongAxis, b: Builder) -> None:
        self._sizes: list[Size] | None = None
        if op.rank() is None and op.written_axis >= 0:
            before, along, behind = around(b.operand(op), op.written_axis)
            self._sizes = [before, along * behind]
            self.axes = [1]
        else:
            self.axes = _from(
                op,
            )

    def of(self, x: Expr) -> Expr:
        """A value of the operand's shape."""
        return x if self._sizes is None else reshape_to(x, x.builder.sizes(self._sizes))

    def of_moment(self, x: Expr) -> Expr:
        """A value with one element for each row."""
        return x if self._sizes is None else reshape_to(x, x.builder.sizes([self._sizes[0], 1]))


@differentiates(std.LayerNormalization)
def _layer_normalization(op: std.LayerNormalization, b: Builder, dys: Cotangents) -> Gradients:
    rows, x, dy = _Rows(op, b), widened(b.operand(op)), widened(dys[0])
    if b.operand(op).dtype in _STASHED and op.stash == ir.DataType.FLOAT:
        moments = (rows.of_moment(demanded_output(op, b, 1)), rows.of_moment(demanded_output(op, b, 2)))
        normalised = _Normalised(rows.of(x), rows.axes, *moments)
    else:
        normalised = _Normalised.of(rows.of(x), rows.axes, op.epsilon)
    flowing = [
        None if found is None else rows.of_moment(found.cast(x.dtype)) for found in (*dys.given, None, None)[1:3]
    ]
    dx = _sum(normalised.back(rows.of(dy * widened(b.operand(op, 1)))), normalised.back_from_moments(*flowing))
    d_scale = unbroadcast(dy * reshaped_like(normalised.value, x), b.operand(op, 1)) if dys.needs(1) else None
    return reshaped_like(dx, x), d_scale, unbroadcast(dy, b.operand(op, 2)) if dys.needs(2) else None


@differentiates(std.RMSNormalization)
def _rms_normalization(op: std.RMSNormalization, b: Builder, dys: Cotangents) -> Gradients:
    rows, dy = _Rows(op, b), widened(dys[0])
    x = rows.of(widened(b.operand(op)))
    inverse = _inverse(_mean(x * x, rows.axes), op.epsilon)
    normalised, scaled = x * inverse, rows.of(dy * widened(b.operand(op, 1)))
    dx = inverse * (scaled - normalised * _mean(scaled * normalised, rows.axes))
    d_scale = unbroadcast(dy * reshaped_like(normalised, b.operand(op)), b.operand(op, 1)) if dys.needs(1) else None
    return reshaped_like(dx, b.operand(op)), d_scale


def _channelled(op: std.Standard, b: Builder, dys: Cotangents) -> tuple[int, Expr, Expr]:
    """The rank, the operand and the result's gradient; of an open rank with all axes behind the channels as one."""
    if op.rank() is not None:
        return op.known_rank(), widened(b.operand(op)), widened(dys[0])
    sizes = b.sizes(around(b.operand(op), 1))
    return 3, reshape_to(widened(b.operand(op)), sizes), reshape_to(widened(dys[0]), sizes)


def _channel_sums(x: Expr, rank: int) -> Expr:
    return x.sum([axis for axis in range(rank) if axis != 1])


@differentiates(std.InstanceNormalization)
def _instance_normalization(op: std.InstanceNormalization, b: Builder, dys: Cotangents) -> Gradients:
    rank, x, dy = _channelled(op, b, dys)
    normalised = _Normalised.of(x, range(2, rank), op.epsilon)
    dx = normalised.back(dy * per_channel(widened(b.operand(op, 1)), rank))
    return reshaped_like(dx, b.operand(op)), _channel_sums(dy * normalised.value, rank), _channel_sums(dy, rank)


@differentiates(std.GroupNormalization)
def _group_normalization(op: std.GroupNormalization, b: Builder, dys: Cotangents) -> Gradients:
    rank, x, dy = _channelled(op, b, dys)
    sizes = [x.size(axis) for axis in range(rank)]
    each = functools.reduce(operator.mul, sizes[2:], divided(sizes[1], op.num_groups))
    grouped = b.sizes([sizes[0], op.num_groups, each])
    normalised = _Normalised.of(reshape_to(x, grouped), [2], op.epsilon)
    if op.of_groups:
        dy, value, rank = reshape_to(dy, grouped), normalised.value, 3
    else:
        value = reshaped_like(normalised.value, x)
    dx = normalised.back(reshape_to(dy * per_channel(widened(b.operand(op, 1)), rank), grouped))
    return reshaped_like(dx, b.operand(op)), _channel_sums(dy * value, rank), _channel_sums(dy, rank)


@differentiates(std.BatchNormalization)
def _batch_normalization(op: std.BatchNormalization, b: Builder, dys: Cotangents) -> Gradients:
    rank, x, dy = _channelled(op, b, dys)
    scale = per_channel(widened(b.operand(op, 1)), rank)
    if op.training_mode:
        return _batch_in_training(op, b, dys, x, dy, rank)
    if len(op.node.outputs) > 1:
        raise op.unsupported("outputs, for the gradient,", "opset 14 or newer where it trains", f"opset {b.opset}")
    inverse = _inverse(per_channel(widened(b.operand(op, 4)), rank), op.epsilon)
    normalised = (x - per_channel(widened(b.operand(op, 3)), rank)) * inverse
    d_scale = _channel_sums(dy * normalised, rank)
    factor = widened(b.operand(op, 1)) * inverse.reshape(-1)
    d_variance = d_scale * factor * (inverse.reshape(-1) * -0.5) if dys.needs(4) else None
    dx, d_bias = reshaped_like(dy * (scale * inverse), b.operand(op)), _channel_sums(dy, rank)
    return dx, d_scale, d_bias, -(d_bias * factor), d_variance


def _batch_in_training(
    op: std.BatchNormalization, b: Builder, dys: Cotangents, x: Expr, dy: Expr, rank: int
) -> Gradients:
    """The batch's own moments depend on the operand; the running ones take a part of them."""
    over = [axis for axis in range(rank) if axis != 1]
    normalised = _Normalised.of(x, over, op.epsilon)
    dx = normalised.back(dy * per_channel(widened(b.operand(op, 1)), rank))
    running = [None if found is None else per_channel(widened(found), rank) for found in (*dys.given, None, None)[1:3]]
    d_mean, d_variance = (None if found is None else found * (1 - op.momentum) for found in running)
    dx = _sum(dx, normalised.back_from_moments(d_mean, None))
    if d_variance is not None:
        centred = x - normalised.mean
        dx = dx + centred * (d_variance * 2) / count_of(centred, over)
    before = [None if found is None else found * op.momentum for found in (*dys.given, None, None)[1:3]]
    sums = _channel_sums(dy * normalised.value, rank), _channel_sums(dy, rank)
    return reshaped_like(dx, b.operand(op)), *sums, *before


@differentiates(std.Dropout)
def _dropout(op: std.Dropout, b: Builder, dys: Cotangents) -> Gradients:
    """What was kept, with the scale it was given."""
    training = b.facts.uniform(op.training) if op.training is not None else 0
    if training == 0:
        return dys[0]
    ratio = dys[0].like(0.5) if op.ratio is None else b.operand(op, 1).cast(dys[0].dtype)
    dx = b.where(demanded_output(op, b, 1), dys[0] / (1 - ratio), 0)
    return dx if training else b.where(b.operand(op, 2), dx, dys[0])
