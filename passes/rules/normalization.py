"""Lowering of fused batch normalisation and its gradient (Ioffe and Szegedy, Batch Normalization, 2015).

Symbols: C channels, which stand last (NHWC, NDHWC) or second (NCHW, NCDHW).
"""

from __future__ import annotations

import math
from typing import ClassVar

import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp
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
        return vector.unsqueeze(*self._behind)


def _deviation(n: Node, b: Builder, variance: Expr) -> Expr:
    deviation: Expr = (variance + n.epsilon).sqrt()
    return b.op(std.Reciprocal, deviation)


class _BatchNormalization(RawOp, abstract=True, reserve_space_2="C", scale="C", reserve_space_1="C", offset="C"):
    """Shared by the op and its gradient.

    Attributes:
        image: the operands that hold an image.
    """

    image: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def verify(cls, call: Call) -> None:
        """Images have the format's rank, equal shapes, and C channels."""
        data_format = call.attributes["data_format"]
        seen: list[Dim] | None = None
        for name in cls.image:
            shape = call.operands[name].shape
            if shape is None:
                continue
            if len(shape) != len(data_format):
                raise call.error(name, f"rank {len(data_format)} ({data_format})", f"rank {len(shape)}")
            merged = list(seen or shape)
            for axis, (first, second) in enumerate(zip(merged, shape, strict=True)):
                if isinstance(first, int) and isinstance(second, int) and first != second:
                    raise call.error(name, f"shape {merged} (as {cls.image[0]})", list(shape))
                merged[axis] = first if isinstance(first, int) else second
            seen = merged
            channels, bound = shape[data_format.index("C")], call.sizes.get("C")
            if isinstance(channels, int) and isinstance(bound, int) and channels != bound:
                raise call.error(name, f"{bound} channels (as scale)", channels)
            if isinstance(channels, int) or bound is None:
                call.sizes["C"] = channels
        if seen is not None:
            call.unifier.rests["X"] = tuple(seen)


class _Forward(_BatchNormalization, abstract=True):
    image = ("x",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Mean and variance may only be left empty where they are not read."""
        super().verify(call)
        training, factor = call.attributes["is_training"], call.attributes["exponential_avg_factor"]
        for name in ("mean", "variance"):
            shape, channels = call.operands[name].shape, call.sizes.get("C")
            if shape is None:
                continue
            if len(shape) != 1:
                raise call.error(name, "rank 1 [C]", f"rank {len(shape)}")
            empty = shape[0] == 0 and training and factor == 1
            if not empty and isinstance(shape[0], int) and isinstance(channels, int) and shape[0] != channels:
                raise call.error(name, f"shape [{channels}] (C from x)", list(shape))


class FusedBatchNorm(_Forward):
    """Batch normalisation over all axes but the channels; the reserve spaces are for the gradient."""


class FusedBatchNormV2(_Forward):
    """Batch normalisation over all axes but the channels, of halves too."""


class FusedBatchNormV3(_Forward, U=("float32",)):
    """Batch normalisation over all axes but the channels, with one reserve space more."""


@lowers(FusedBatchNorm, FusedBatchNormV2, FusedBatchNormV3)
def fused_batch_norm(n: Node, b: Builder) -> list[Expr]:
    """In training the batch's own mean and variance normalise; the running averages take the unbiased variance.

    The variance is the mean square of what is left of x without its mean: in the mean of x * x digits would cancel.
    """
    channels = _Channels(n, n.x)
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
    scale = channels.broadcast(_deviation(n, b, variance) * n.scale)
    return [
        centred * scale + channels.broadcast(n.offset),
        new_mean,
        new_variance,
        mean,
        variance,
        b.constant(0, ir.DataType.FLOAT),
    ]


class _Gradient(_BatchNormalization, abstract=True):
    image = ("y_backprop", "x")


class FusedBatchNormGrad(_Gradient):
    """Gradient of FusedBatchNorm; the reserve spaces hold mean and variance, of the batch if it is training."""


class FusedBatchNormGradV2(_Gradient):
    """Gradient of FusedBatchNormV2; the reserve spaces hold mean and variance, of the batch if it is training."""


class FusedBatchNormGradV3(_Gradient):
    """Gradient of FusedBatchNormV3; the reserve spaces hold mean and variance, of the batch if it is training."""


@lowers(FusedBatchNormGrad, FusedBatchNormGradV2, FusedBatchNormGradV3)
def fused_batch_norm_grad(n: Node, b: Builder) -> list[Expr]:
    """In training mean and variance depend on x too, which takes the gradient's own mean and slope out of it."""
    channels = _Channels(n, n.x)
    dy, mean, variance = n.y_backprop, n.reserve_space_1, n.reserve_space_2
    deviation = _deviation(n, b, variance)
    normalised = (n.x - channels.broadcast(mean)) * channels.broadcast(deviation)
    d_scale, d_offset = channels.total(dy * normalised), channels.total(dy)
    if n.is_training:
        slope = channels.broadcast(d_scale / channels.count)
        dy = dy - channels.broadcast(d_offset / channels.count) - normalised * slope
    empty = b.constant([], ir.DataType.FLOAT)
    return [dy * channels.broadcast(deviation * n.scale), d_scale, d_offset, empty, empty]


_FLOATS = ("float16", "bfloat16", "float32")
