"""Lowering of the gradients of poolings."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr
from lstm_lower.ops.pooling import AvgPool3DGrad, AvgPoolGrad, MaxPool3DGrad, MaxPoolGrad
from lstm_lower.passes.rules.indexing import INT64, reshape_to
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.sizes import Size, entries
from lstm_lower.passes.rules.spatial import (
    Margins,
    arranged,
    channels_first,
    check_float32,
    margins,
    padded,
    slid,
    spread,
    window_margins,
)
from lstm_lower.spatial import SYMBOLS, SpatialAxis, spatial_axes, spatial_positions


def _axes(n: Node) -> list[SpatialAxis]:
    return spatial_axes(n.call.attributes, [n.ksize[position] for position in spatial_positions(n.data_format)])


@lowers(MaxPoolGrad)
def max_pool_grad(n: Node) -> dict[str, Expr]:
    """Pools again to learn the places of the largest elements, and adds the gradient there.

    Like TensorFlow's kernel, onnxruntime's takes the first of equal elements.
    """
    b, axes = n.builder, _axes(n)
    overlap = any(axis.kernel > axis.stride for axis in axes)
    if overlap and b.opset < 16:
        raise n.unsupported("attribute strides", "windows that do not overlap (before opset 16)", n.strides)
    image = arranged(n.orig_input, n.data_format, "NCHW")
    places = window_margins(n, axes)
    _, where = b.ops(
        std.MaxPool,
        image,
        outputs=2,
        kernel_shape=[axis.kernel for axis in axes],
        strides=[axis.stride for axis in axes],
        **_padding(axes, places),
    )
    flat = b.op(std.ConstantOfShape, b.op(std.Size, image).reshape(1), value=ir.tensor([0], dtype=image.dtype))
    gradient = arranged(n.grad, n.data_format, "NCHW").reshape(-1)
    adding = {"reduction": "add"} if overlap else {}
    total = b.op(std.ScatterElements, flat, where.reshape(-1), gradient, axis=0, **adding)
    result = reshape_to(total, b.op(std.Shape, image))
    if image.shape is not None:
        b.set_shape(result, image.shape)
    return {"output": arranged(result, "NCHW", n.data_format)}


@lowers(MaxPool3DGrad)
def max_pool_3d_grad(n: Node) -> dict[str, Expr]:
    """The elements of each window as channels, and of the gradient at those that equal the largest.

    Unlike MaxPoolGrad, TensorFlow's kernel gives the gradient to each of equal elements.
    """
    check_float32(n, "grad", std.ConvTranspose)
    axes = _axes(n)
    places, kernel = window_margins(n, axes), [axis.kernel for axis in axes]
    first = channels_first(n.data_format)
    image, largest, gradient = (
        arranged(x, n.data_format, first).reshape(-1, 1, 0, 0, 0) for x in (n.orig_input, n.orig_output, n.grad)
    )
    taps = math.prod(kernel)
    each = n.builder.constant(np.eye(taps).reshape(taps, 1, *kernel), image.dtype)
    met = slid(image, each, axes, places, 1)
    chosen = n.builder.where(n.builder.op(std.Equal, met, largest), gradient, 0)
    volume = n.builder.op(std.Shape, arranged(n.orig_input, n.data_format, first))
    result = reshape_to(spread(chosen, each, axes, places, 1), volume)
    return {"output": arranged(result, first, n.data_format)}


def _padding(axes: list[SpatialAxis], places: list[Margins]) -> dict[str, object]:
    """The padding as attributes; elements that no window meets need no mention."""
    before = [place.before for place in places]
    after = [max(place.after, 0) if isinstance(place.after, int) else place.after for place in places]
    if axes[0].padding == "VALID":
        return {}
    if axes[0].padding == "EXPLICIT":
        return {"pads": [axis.explicit[side] for side in (0, 1) for axis in axes]}
    if all(isinstance(side, int) for side in before + after):
        return {"pads": before + after}
    return {"auto_pad": "SAME_UPPER"}


@lowers(AvgPoolGrad, AvgPool3DGrad)
def avg_pool_grad(n: Node) -> dict[str, Expr]:
    """Spreads each window's share over its elements: a transposed convolution with ones, channel by channel."""
    check_float32(n, "grad", std.ConvTranspose)
    b, axes = n.builder, _axes(n)
    sizes = entries(n.orig_input_shape)
    assert sizes is not None
    image = [sizes[position] for position in spatial_positions(n.data_format)]
    windows = [n.size(symbol) for symbol in SYMBOLS[len(n.data_format)][2]]
    places = [margins(axis, size, count) for axis, size, count in zip(axes, image, windows, strict=True)]
    first = channels_first(n.data_format)
    share = arranged(n.grad, n.data_format, first)
    for behind, axis, place, size, count in zip(range(len(axes))[::-1], axes, places, image, windows, strict=True):
        elements = _elements(n, axis, place, size, count)
        share = share / (elements.unsqueeze(*range(1, 1 + behind)) if behind else elements)
    made = b.op(
        std.ConvTranspose,
        share.reshape(-1, 1, *[0] * len(axes)),
        b.fill(1, [1, 1, *(axis.kernel for axis in axes)], share.dtype),
        kernel_shape=[axis.kernel for axis in axes],
        strides=[axis.stride for axis in axes],
    )
    made = padded(made, [(0 - place.before, 0 - place.after) for place in places])
    whole = b.sizes([*(n.size(symbol) for symbol in "NC"), *image])
    result = reshape_to(made, whole)
    return {"output": arranged(result, first, n.data_format)}


def _elements(n: Node, axis: SpatialAxis, place: Margins, size: Size, windows: Size) -> Expr:
    """How many elements of the image each window has along an axis, in the gradient's dtype."""
    b, dtype = n.builder, n.grad.dtype
    if axis.padding == "VALID":
        return b.constant([axis.kernel], dtype)
    if isinstance(size, int) and isinstance(windows, int) and isinstance(place.before, int):
        starts = [number * axis.stride - place.before for number in range(windows)]
        return b.constant([min(start + axis.kernel, size) - max(start, 0) for start in starts], dtype)
    count = b.sizes([windows]).reshape()
    start = b.op(std.Range, b.constant(0, INT64), count, b.constant(1, INT64)) * axis.stride - b.sizes([place.before])
    end: Expr = (start + axis.kernel).minimum(b.sizes([size]))
    return (end - start.maximum(0)).cast(dtype)
