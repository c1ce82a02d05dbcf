"""Lowering of fused batch normalisation and its gradient (Ioffe and Szegedy, Batch Normalization, 2015)."""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.normalization import (
    FusedBatchNorm,
    FusedBatchNormGrad,
    FusedBatchNormGradV2,
    FusedBatchNormGradV3,
    FusedBatchNormV2,
    FusedBatchNormV3,
)
from lstm_lower.passes.rules.registry import Node, lowers


class _Channels:
    """The channels of a node's images: sums over all else, and vectors that broadcast against an image."""

    def __init__(self, n: Node, image: Expr) -> None:
        rank, channels = len(n.data_format), n.data_format.index("C")
        self._image = image
        self._over = [axis for axis in range(rank) if axis != channels]
        self._behind = list(range(1, rank - channels))
        self.count = self._count()

    def _count(self) -> Expr:
        """The number of elements of a channel, as a scalar in the image's dtype."""
        image = self._image
        sizes = [image.size(axis) for axis in self._over]
        if all(isinstance(size, int) for size in sizes):
            return image.like(math.prod(size for size in sizes if isinstance(size, int)))
        shape = image.sizes().take(image.builder.ints(*self._over))
        return image.builder.op(std.ReduceProd, shape, keepdims=0).cast(image.dtype)

    def total(self, image: Expr) -> Expr:
        """The sum of each channel [C]."""
        return image.sum(self._over)

    def mean(self, image: Expr) -> Expr:
        """The mean of each channel [C]."""
        return self.total(image) / self.count

    def broadcast(self, vector: Expr) -> Expr:
        """A vector [C] in a shape that goes with an image's."""
        return vector.unsqueeze(*self._behind) if self._behind else vector


def _deviation(n: Node, variance: Expr) -> Expr:
    deviation: Expr = (variance + n.epsilon).sqrt()
    return n.builder.op(std.Reciprocal, deviation)


@lowers(FusedBatchNorm, FusedBatchNormV2, FusedBatchNormV3)
def fused_batch_norm(n: Node) -> dict[str, Expr]:
    """In training the batch's own mean and variance normalise; the running averages take the unbiased variance.

    The variance is the mean square of what is left of x without its mean: in the mean of x * x digits would cancel.
    """
    b, channels = n.builder, _Channels(n, n.x)
    mean, variance = n.mean, n.variance
    new_mean, new_variance = mean, variance
    if n.is_training:
        mean = channels.mean(n.x)
        centred = n.x - channels.broadcast(mean)
        variance = channels.mean(centred * centred)
        others = (channels.count - 1).maximum(1)
        new_mean, new_variance = mean, variance * (channels.count / others)
        factor = n.exponential_avg_factor
        if factor != 1:
            new_mean = n.mean * (1 - factor) + new_mean * factor
            new_variance = n.variance * (1 - factor) + new_variance * factor
    else:
        centred = n.x - channels.broadcast(mean)
    scale = channels.broadcast(_deviation(n, variance) * n.scale)
    return {
        "y": centred * scale + channels.broadcast(n.offset),
        "batch_mean": new_mean,
        "batch_variance": new_variance,
        "reserve_space_1": mean,
        "reserve_space_2": variance,
        "reserve_space_3": b.constant(0, ir.DataType.FLOAT),
    }


@lowers(FusedBatchNormGrad, FusedBatchNormGradV2, FusedBatchNormGradV3)
def fused_batch_norm_grad(n: Node) -> dict[str, Expr]:
    """In training mean and variance depend on x too, which takes the gradient's own mean and slope out of it."""
    channels = _Channels(n, n.x)
    dy, mean, variance = n.y_backprop, n.reserve_space_1, n.reserve_space_2
    deviation = _deviation(n, variance)
    normalised = (n.x - channels.broadcast(mean)) * channels.broadcast(deviation)
    d_scale, d_offset = channels.total(dy * normalised), channels.total(dy)
    if n.is_training:
        slope = channels.broadcast(d_scale / channels.count)
        dy = dy - channels.broadcast(d_offset / channels.count) - normalised * slope
    empty = n.builder.constant([], ir.DataType.FLOAT)
    results = {
        "x_backprop": dy * channels.broadcast(deviation * n.scale),
        "scale_backprop": d_scale,
        "offset_backprop": d_offset,
    }
    return results | {f"reserve_space_{number}": empty for number in (3, 4, 5)}
