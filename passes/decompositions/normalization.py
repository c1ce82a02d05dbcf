"""Normalizations by their formulas.

A variance is the mean square of what is left of x without its mean: in the mean of x * x, which onnx's own functions
are written with, digits cancel.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.moments import moments, per_channel
from lstm_lower.passes.rewriting import decomposes


@decomposes(std.BatchNormalization)
def batch_normalization(view: std.BatchNormalization, b: Builder) -> list[Expr]:
    """Y, and in training the new running mean and variance, which is that of the batch, not an unbiased one.

    Before opset 14 there are the mean of the batch and, as onnxruntime has it, its inverse deviation behind them.
    """
    rank = _rank(view)
    x, dtype = widened(b.wrap(view.data)), b.wrap(view.data).dtype
    mean, variance = widened(b.wrap(view.running_mean)), widened(b.wrap(view.running_variance))
    scale, bias = widened(b.wrap(view.scale)), widened(b.wrap(view.bias))
    if not view.training_mode:
        if any(value.uses() or value.is_graph_output() for value in view.node.outputs[1:]):
            raise view.unsupported("outputs", "Y alone outside of training", "more")
        factor = scale / (variance + view.epsilon).sqrt()
        return [((x - per_channel(mean, rank)) * per_channel(factor, rank) + per_channel(bias, rank)).cast(dtype)]
    axes = [axis for axis in range(rank) if axis != 1]
    centered, of_batch, variance_of_batch = moments(x, axes)
    deviation = (variance_of_batch + view.epsilon).sqrt()
    normal = centered / deviation
    running = [
        (old * view.momentum + new.reshape(-1) * (1 - view.momentum)).cast(b.wrap(operand).dtype)
        for operand, old, new in (
            (view.running_mean, mean, of_batch),
            (view.running_variance, variance, variance_of_batch),
        )
    ]
    made = [(normal * per_channel(scale, rank) + per_channel(bias, rank)).cast(dtype), *running]
    if len(view.node.outputs) > len(made):
        made += [of_batch.reshape(-1).cast(dtype), (1 / deviation).reshape(-1).cast(dtype)]
    return made


@decomposes(std.InstanceNormalization)
def instance_normalization(view: std.InstanceNormalization, b: Builder) -> Expr:
    """Each channel of each example by itself."""
    rank, dtype = _rank(view), b.wrap(view.data).dtype
    normal = _normal(widened(b.wrap(view.data)), range(2, rank), view.epsilon)
    scale, bias = (per_channel(widened(b.wrap(value)), rank) for value in (view.scale, view.bias))
    return (normal * scale + bias).cast(dtype)


@decomposes(std.GroupNormalization)
def group_normalization(view: std.GroupNormalization, b: Builder) -> Expr:
    """Groups of channels of each example by themselves."""
    x, scale, bias = widened(b.wrap(view.data)), widened(b.wrap(view.scale)), widened(b.wrap(view.bias))
    normal = _normal(x.reshape(0, view.num_groups, -1), [2], view.epsilon)
    if view.of_groups:
        normal = normal * scale.unsqueeze(1) + bias.unsqueeze(1)
    result = b.op(std.Reshape, normal, x.sizes())
    if x.shape is not None:
        b.set_shape(result, x.shape)
    if not view.of_groups:
        rank = _rank(view)
        result = result * per_channel(scale, rank) + per_channel(bias, rank)
    return result.cast(b.wrap(view.data).dtype)


@decomposes(std.LayerNormalization)
def layer_normalization(view: std.LayerNormalization, b: Builder) -> list[Expr]:
    """Y, mean and inverse deviation."""
    x, axis = b.wrap(view.data), view.attribute("axis", -1)
    # Axes counted from behind do not ask for the rank.
    axes = list(range(axis, 0)) if axis < 0 else list(range(axis, _rank(view)))
    # Doubles stay what they are, as they do in onnxruntime.
    wide = x.dtype if x.dtype == ir.DataType.DOUBLE else view.stash
    centered, mean, variance = moments(x.cast(wide), axes)
    deviation = (variance + view.epsilon).sqrt()
    y = (centered / deviation).cast(x.dtype) * b.wrap(view.scale)
    y = y if view.bias is None else y + b.wrap(view.bias)
    return [y, mean.cast(view.stash), b.op(std.Reciprocal, deviation).cast(view.stash)]


@decomposes(std.MeanVarianceNormalization)
def mean_variance_normalization(view: std.MeanVarianceNormalization, b: Builder) -> Expr:
    """With the tiny number of onnx's function, which keeps the deviation from being 0."""
    centered, _, variance = moments(widened(b.wrap(view.data)), view.axes)
    return (centered / (variance.sqrt() + 1e-9)).cast(b.wrap(view.data).dtype)


@decomposes(std.LpNormalization)
def lp_normalization(view: std.LpNormalization, b: Builder) -> Expr:
    """Zeros where all elements along the axis are."""
    x, axis = widened(b.wrap(view.data)), view.attribute("axis", -1)
    total = (x.abs() if view.p == 1 else x * x).sum(axis, keepdims=True)
    # Before the root, whose slope at 0 is infinite.
    total = b.where(total > 0, total, 1)
    return (x / (total if view.p == 1 else total.sqrt())).cast(b.wrap(view.data).dtype)


@decomposes(std.LRN)
def local_response_normalization(view: std.LRN, b: Builder) -> Expr:
    """Sums over neighbouring channels, of which there are zeros beyond the first and the last."""
    whole = widened(b.wrap(view.data))
    x = whole if whole.shape is not None else b.set_shape(whole.reshape(0, 0, -1), [None] * 3)
    rank, before, channels = len(x.shape or ()), (view.size - 1) // 2, x.size(1)
    pads = [0] * (2 * rank)
    pads[1], pads[1 + rank] = before, view.size - 1 - before
    padded = b.op(std.Pad, x * x, b.ints(*pads))
    first, *others = [padded.slice(shift, channels + shift, axis=1) for shift in range(view.size)]
    total = sum(others, first)
    scale = total * (view.alpha / view.size) + view.shift
    made = x / scale**view.beta
    made = made if whole.shape is not None else b.op(std.Reshape, made, whole.sizes())
    return made.cast(b.wrap(view.data).dtype)


def _normal(x: Expr, axes: Sequence[int], epsilon: float) -> Expr:
    centered, _, variance = moments(x, axes)
    return centered / (variance + epsilon).sqrt()


def _rank(view: std.Standard) -> int:
    rank = view.rank()
    if rank is None:
        raise view.unsupported("the first operand", "a known rank", std.undeclared(view.operand(0)))
    return rank
