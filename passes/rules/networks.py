"""Lowering of layers that keep their operand's shape, and of resized images.

Symbols: N batch, H x W an image, C channels or classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import FLOATS, NUMBERS, RawOp
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.formulas.spatial import arranged
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.passes.rules.registry import Node, lowers, lowers_by, widened

_FLOAT, _INT64 = ir.DataType.FLOAT, ir.DataType.INT64


class _Biased(RawOp, abstract=True, T=NUMBERS, bias="C"):
    """A number added to each channel."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The bias has a number for each channel."""
        shape, channels = call.operands["value"].shape, call.sizes.get("C")
        if shape is None:
            return
        if len(shape) < 2:
            raise call.error("value", "rank 2 or more", f"rank {len(shape)}")
        last = call.attributes.get("data_format", "NHWC") == "NHWC"
        own = shape[-1] if last else shape[1]
        if isinstance(own, int) and isinstance(channels, int) and own != channels:
            raise call.error("bias", f"{own} numbers (one for each channel of value)", channels)


class BiasAddV1(_Biased):
    """A number added to each channel, the last axis."""


class Softmax(RawOp, logits="*S C"):
    """exp(x), divided by its sum over the last axis."""


class LogSoftmax(RawOp, logits="*S C"):
    """Logarithm of the softmax over the last axis."""


lowers_by(
    {
        BiasAddV1: lambda value, bias: value + bias,
        Softmax: lambda x: x.builder.op(std.Softmax, x, axis=-1),
        LogSoftmax: lambda x: x.builder.op(std.LogSoftmax, x, axis=-1),
    }
)


class BiasAdd(_Biased):
    """A number added to each channel, the last axis (NHWC) or axis 1 (NCHW)."""


@lowers(BiasAdd, repeatable=True)
def bias_add(n: Node, _: Builder) -> Expr:
    """A sum; axes behind the channels broadcast."""
    value, bias = widened(n.operand("value")), widened(n.bias)
    if n.data_format == "NCHW":
        if value.shape is None:
            raise n.unsupported("value", "a known rank where data_format is NCHW", "an unknown one")
        behind = range(1, len(value.shape) - 1)
        bias = bias.unsqueeze(*behind)
    return value + bias


class _Axis:
    """The places on an axis of the images that the pixels of the result have, in float32 as the kernels compute them.

    Attributes:
        last: number of the axis' last pixel.
        places: where each pixel of the result lies.
    """

    def __init__(self, n: Node, b: Builder, images: Expr, made: Expr, axis: int) -> None:
        size = b.sizes([images.size(axis)]).reshape()
        self.last = size - 1
        numbers = up_to(b, made).cast(_FLOAT)
        scale = size.cast(_FLOAT) / made.cast(_FLOAT)
        if n.align_corners:
            # Of one pixel there is no distance between the corners.
            corners = self.last.cast(_FLOAT) / (made - 1).maximum(1).cast(_FLOAT)
            scale = b.where(made > 1, corners, scale)
        self.places = (numbers + 0.5) * scale if n.half_pixel_centers else numbers * scale

    def pixels(self, places: Expr) -> Expr:
        """Whole places as numbers of pixels of the images."""
        return places.cast(_INT64).maximum(0).minimum(self.last)


def _sizes(n: Node) -> list[Expr]:
    """Rows and columns that the operand `size` holds, as scalars."""
    return [n.operand("size").take(at).cast(_INT64) for at in (0, 1)]


def _nearest(n: Node, b: Builder, images: Expr, sizes: Sequence[Expr]) -> Expr:
    """Chosen rows, and chosen columns of these."""
    for number, made in enumerate(sizes, start=1):
        axis = _Axis(n, b, images, made, number)
        places = (axis.places + 0.5 if n.align_corners else axis.places).floor()
        images = images.take(axis.pixels(places), axis=number)
    return images


def _bilinear(n: Node, b: Builder, images: Expr, sizes: Sequence[Expr]) -> Expr:
    """Rows between the two around each place, and columns between these."""
    for number in (2, 1):
        axis = _Axis(n, b, images, sizes[number - 1], number)
        places = axis.places - 0.5 if n.half_pixel_centers else axis.places
        below = places.floor()
        first, second = (images.take(axis.pixels(whole), axis=number) for whole in (below, b.op(std.Ceil, places)))
        share = (places - below).unsqueeze(*range(1, 4 - number))
        images = first + (second - first) * share
    return images


class Resizing(RawOp, abstract=True, original_image="N H W C", images="N H W C", size="2", grads="N P Q C"):
    """An op that reads or makes images of other sizes.

    With `half_pixel_centers` a pixel is a square and its place the centre of it; with `align_corners` the corners of
    both images are the same points; without either, pixels are points and the first ones the same.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """Corners and centres cannot both be what stays."""
        if call.attributes["align_corners"] and call.attributes["half_pixel_centers"]:
            raise call.error("attribute half_pixel_centers", "false where align_corners is true", True)


class ResizeNearestNeighbor(Resizing):
    """Images of other sizes, each pixel that of the nearest place."""


@lowers(ResizeNearestNeighbor, repeatable=True)
def resize_nearest_neighbor(n: Node, b: Builder) -> Expr:
    """Chosen pixels."""
    return _nearest(n, b, n.images, _sizes(n))


class ResizeNearestNeighborGrad(Resizing, T=FLOATS):
    """Gradient of images of other sizes, each pixel that of the nearest place, with respect to the images."""


@lowers(ResizeNearestNeighborGrad, repeatable=True)
def resize_nearest_neighbor_grad(n: Node, b: Builder) -> Expr:
    """Each pixel's gradient, added to that of the pixel that it was."""
    grads = n.grads
    shape = b.concat([b.sizes([grads.size(0)]), n.operand("size").cast(_INT64), b.sizes([grads.size(3)])], 0)
    images = b.fill(0, shape, grads.dtype)
    images = b.set_shape(images, [None, None, None, None])
    made = [b.sizes([grads.size(axis)]).reshape() for axis in (1, 2)]
    return pullback(b, [_nearest(n, b, images, made)], [images], [grads])[0]


class ResizeBilinear(Resizing):
    """Images of other sizes, each pixel interpolated linearly between the four around its place."""


@lowers(ResizeBilinear, repeatable=True)
def resize_bilinear(n: Node, b: Builder) -> Expr:
    """Interpolated in float32."""
    return _bilinear(n, b, n.images.cast(_FLOAT), _sizes(n))


class ResizeBilinearGrad(Resizing):
    """Gradient of linearly interpolated images with respect to the images."""


@lowers(ResizeBilinearGrad, repeatable=True)
def resize_bilinear_grad(n: Node, b: Builder) -> Expr:
    """Each pixel's gradient, shared out among the four that it was interpolated from."""
    images = n.original_image
    wide = images.cast(_FLOAT)
    made = [b.sizes([n.grads.size(axis)]).reshape() for axis in (1, 2)]
    return pullback(b, [_bilinear(n, b, wide, made)], [wide], [n.grads])[0].cast(images.dtype)


class LRN(RawOp, input="N H W C"):
    """x / (bias + alpha * sum of x squared over the channels at most `depth_radius` away) ** beta.

    Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, 2012, section 3.3.
    """


@lowers(LRN, repeatable=True)
def local_response_normalization(n: Node, b: Builder) -> Expr:
    """ONNX's operator, which takes the mean over the window in place of the sum."""
    return _normalized(n, b, arranged(widened(n.input), "NHWC", "NCHW")).transpose(0, 2, 3, 1)


def _normalized(n: Node, b: Builder, image: Expr) -> Expr:
    size = 2 * n.depth_radius + 1
    options = {"alpha": n.alpha * size, "beta": n.beta, "bias": n.bias, "size": size}
    return b.op(std.LRN, image.cast(_FLOAT), **options).cast(image.dtype)


class LRNGrad(RawOp, input_grads="N H W C", input_image="N H W C", output_image="N H W C"):
    """Gradient of LRN with respect to the image."""


@lowers(LRNGrad, repeatable=True)
def local_response_normalization_grad(n: Node, b: Builder) -> Expr:
    """The gradient of that operator."""
    image, dy = (arranged(x, "NHWC", "NCHW") for x in (n.input_image, n.input_grads))
    return pullback(b, [_normalized(n, b, image)], [image], [dy])[0].transpose(0, 2, 3, 1)
