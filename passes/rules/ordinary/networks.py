"""Lowering of layers that keep their operand's shape, and of resized images."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr
from lstm_lower.ops.ordinary.networks import (
    BiasAdd,
    BiasAddV1,
    LogSoftmax,
    ResizeBilinear,
    ResizeNearestNeighbor,
    Softmax,
)
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

    def __init__(self, n: Node, axis: int) -> None:
        b = n.builder
        size = b.sizes([n.images.size(axis)]).reshape()
        made = b.op(std.Gather, n.operand("size"), b.constant(axis - 1, _INT64), axis=0).cast(_INT64)
        self.last = size - 1
        numbers = b.op(std.Range, b.constant(0, _INT64), made, b.constant(1, _INT64)).cast(_FLOAT)
        scale = size.cast(_FLOAT) / made.cast(_FLOAT)
        if n.align_corners:
            # Of one pixel there is no distance between the corners.
            corners = self.last.cast(_FLOAT) / (made - 1).maximum(1).cast(_FLOAT)
            scale = b.where(made > 1, corners, scale)
        self.places = (numbers + 0.5) * scale if n.half_pixel_centers else numbers * scale

    def pixels(self, places: Expr) -> Expr:
        """Whole places as numbers of pixels of the images."""
        return places.cast(_INT64).maximum(0).minimum(self.last)


@lowers(ResizeNearestNeighbor, repeatable=True)
def resize_nearest_neighbor(n: Node) -> dict[str, Expr]:
    """Chosen rows, and chosen columns of these."""
    b, result = n.builder, n.images
    for number in (1, 2):
        axis = _Axis(n, number)
        places = b.op(std.Floor, axis.places + 0.5 if n.align_corners else axis.places)
        result = b.op(std.Gather, result, axis.pixels(places), axis=number)
    return {"resized_images": result}


@lowers(ResizeBilinear, repeatable=True)
def resize_bilinear(n: Node) -> dict[str, Expr]:
    """Rows between the two around each place, and columns between these."""
    b, result = n.builder, n.images.cast(_FLOAT)
    for number in (2, 1):
        axis = _Axis(n, number)
        places = axis.places - 0.5 if n.half_pixel_centers else axis.places
        below = b.op(std.Floor, places)
        first, second = (
            b.op(std.Gather, result, axis.pixels(whole), axis=number) for whole in (below, b.op(std.Ceil, places))
        )
        share = (places - below).unsqueeze(*range(1, 4 - number))
        result = first + (second - first) * share
    return {"resized_images": result}
