"""Lowering of layers that keep their operand's shape, and of resized images."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.networks import (
    LRN,
    BiasAdd,
    BiasAddV1,
    LogSoftmax,
    LRNGrad,
    ResizeBilinear,
    ResizeBilinearGrad,
    ResizeNearestNeighbor,
    ResizeNearestNeighborGrad,
    Softmax,
)
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.formulas.spatial import arranged
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.passes.rules.ordinary.tables import lowers_by, widened
from lstm_lower.passes.rules.registry import Node, lowers

_FLOAT, _INT64 = ir.DataType.FLOAT, ir.DataType.INT64

lowers_by(
    {
        BiasAddV1: lambda value, bias: value + bias,
        Softmax: lambda x: x.builder.op(std.Softmax, x, axis=-1),
        LogSoftmax: lambda x: x.builder.op(std.LogSoftmax, x, axis=-1),
    }
)


@lowers(BiasAdd, repeatable=True)
def bias_add(n: Node) -> dict[str, Expr]:
    """A sum; axes behind the channels broadcast."""
    value, bias = widened(n.operand("value")), widened(n.bias)
    if n.data_format == "NCHW":
        if value.shape is None:
            raise n.unsupported("value", "a known rank where data_format is NCHW", "an unknown one")
        behind = range(1, len(value.shape) - 1)
        bias = bias.unsqueeze(*behind) if behind else bias
    return {"output": value + bias}


class _Axis:
    """The places on an axis of the images that the pixels of the result have, in float32 as the kernels compute them.

    Attributes:
        last: number of the axis' last pixel.
        places: where each pixel of the result lies.
    """

    def __init__(self, n: Node, images: Expr, made: Expr, axis: int) -> None:
        b = n.builder
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


def _nearest(n: Node, images: Expr, sizes: Sequence[Expr]) -> Expr:
    """Chosen rows, and chosen columns of these."""
    for number, made in enumerate(sizes, start=1):
        axis = _Axis(n, images, made, number)
        places = (axis.places + 0.5 if n.align_corners else axis.places).floor()
        images = images.take(axis.pixels(places), axis=number)
    return images


def _bilinear(n: Node, images: Expr, sizes: Sequence[Expr]) -> Expr:
    """Rows between the two around each place, and columns between these."""
    b = n.builder
    for number in (2, 1):
        axis = _Axis(n, images, sizes[number - 1], number)
        places = axis.places - 0.5 if n.half_pixel_centers else axis.places
        below = places.floor()
        first, second = (images.take(axis.pixels(whole), axis=number) for whole in (below, b.op(std.Ceil, places)))
        share = (places - below).unsqueeze(*range(1, 4 - number))
        images = first + (second - first) * share
    return images


@lowers(ResizeNearestNeighbor, repeatable=True)
def resize_nearest_neighbor(n: Node) -> dict[str, Expr]:
    """Chosen pixels."""
    return {"resized_images": _nearest(n, n.images, _sizes(n))}


@lowers(ResizeNearestNeighborGrad, repeatable=True)
def resize_nearest_neighbor_grad(n: Node) -> dict[str, Expr]:
    """Each pixel's gradient, added to that of the pixel that it was."""
    b, grads = n.builder, n.grads
    shape = b.concat([b.sizes([grads.size(0)]), n.operand("size").cast(_INT64), b.sizes([grads.size(3)])], 0)
    images = b.fill(0, shape, grads.dtype)
    images = b.set_shape(images, [None, None, None, None])
    made = [b.sizes([grads.size(axis)]).reshape() for axis in (1, 2)]
    return {"output": pullback(b, [_nearest(n, images, made)], [images], [grads])[0]}


@lowers(ResizeBilinear, repeatable=True)
def resize_bilinear(n: Node) -> dict[str, Expr]:
    """Interpolated in float32."""
    return {"resized_images": _bilinear(n, n.images.cast(_FLOAT), _sizes(n))}


@lowers(ResizeBilinearGrad, repeatable=True)
def resize_bilinear_grad(n: Node) -> dict[str, Expr]:
    """Each pixel's gradient, shared out among the four that it was interpolated from."""
    b, images = n.builder, n.original_image
    wide = images.cast(_FLOAT)
    made = [b.sizes([n.grads.size(axis)]).reshape() for axis in (1, 2)]
    return {"output": pullback(b, [_bilinear(n, wide, made)], [wide], [n.grads])[0].cast(images.dtype)}


@lowers(LRN, repeatable=True)
def local_response_normalization(n: Node) -> dict[str, Expr]:
    """ONNX's operator, which takes the mean over the window in place of the sum."""
    return {"output": _normalized(n, arranged(widened(n.input), "NHWC", "NCHW")).transpose(0, 2, 3, 1)}


def _normalized(n: Node, image: Expr) -> Expr:
    size = 2 * n.depth_radius + 1
    options = {"alpha": n.alpha * size, "beta": n.beta, "bias": n.bias, "size": size}
    return n.builder.op(std.LRN, image.cast(_FLOAT), **options).cast(image.dtype)


@lowers(LRNGrad, repeatable=True)
def local_response_normalization_grad(n: Node) -> dict[str, Expr]:
    """The gradient of that operator."""
    image, dy = (arranged(x, "NHWC", "NCHW") for x in (n.input_image, n.input_grads))
    return {"output": pullback(n.builder, [_normalized(n, image)], [image], [dy])[0].transpose(0, 2, 3, 1)}
