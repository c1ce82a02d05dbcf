"""Lowering of convolutions and poolings."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.windows import (
    AvgPool,
    AvgPool3D,
    Conv2D,
    Conv3D,
    DepthwiseConv2dNative,
    MaxPool,
    MaxPool3D,
    MaxPoolV2,
    MaxPoolWithArgmax,
)
from lstm_lower.passes.formulas.spatial import arranged, channels_first, padded
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.spatial import check_float32, window_margin, window_maxima, window_padding
from lstm_lower.spatial import SpatialAxis, window_axes


@lowers(Conv2D, Conv3D, repeatable=True)
def convolution(n: Node) -> dict[str, Expr]:
    """A Conv; the number of groups follows from the channels of image and filter."""
    whole, part = n.size("C"), n.size("I")
    # Where one is open, one group: onnxruntime compares the channels.
    groups = max(whole // max(part, 1), 1) if isinstance(whole, int) and isinstance(part, int) else 1
    spatial = range(len(n.data_format) - 2)
    return {"output": _convolved(n, n.filter.transpose(len(spatial) + 1, len(spatial), *spatial), groups)}


@lowers(DepthwiseConv2dNative, repeatable=True)
def depthwise_convolution(n: Node) -> dict[str, Expr]:
    """A Conv with a group for each channel of the image."""
    channels, multiplier = n.size("C"), n.size("M")
    if not isinstance(channels, int) or not isinstance(multiplier, int):
        raise n.unsupported("filter", "known numbers of channels", "unknown ones")
    weights = n.filter.reshape(0, 0, 1, channels * multiplier).transpose(3, 2, 0, 1)
    return {"output": _convolved(n, weights, channels)}


def _convolved(n: Node, weights: Expr, groups: int) -> Expr:
    check_float32(n, "input", std.Conv)
    axes = _axes(n, "filter")
    image = arranged(n.input, n.data_format, channels_first(n.data_format))
    image, padding = _padded(n, axes, image)
    result = n.builder.op(
        std.Conv,
        image,
        weights,
        group=groups,
        kernel_shape=[axis.kernel for axis in axes],
        strides=[axis.stride for axis in axes],
        dilations=[axis.dilation for axis in axes],
        **padding,
    )
    return arranged(result, channels_first(n.data_format), n.data_format)


def _axes(n: Node, operand: str) -> list[SpatialAxis]:
    axes = window_axes(n.call)
    if axes is None:
        raise n.unsupported(operand, "known sizes of the windows", "sizes known at run time only")
    return axes


def _padded(n: Node, axes: list[SpatialAxis], image: Expr, fill: float = 0) -> tuple[Expr, dict[str, Any]]:
    """The image with the padding around it that is known at run time only, and the attributes that say the rest."""
    padding = window_padding(n, axes)
    if padding is not None:
        return image, padding
    # Nor does onnxruntime find out by itself the padding of windows with gaps, in them or between them.
    if all(axis.dilation == 1 and axis.kernel >= axis.stride for axis in axes):
        return image, {"auto_pad": "SAME_UPPER"}
    return padded(image, [window_margin(n, axes, at) for at in range(len(axes))], fill), {}


@lowers(MaxPool, MaxPoolV2, MaxPool3D, repeatable=True)
def max_pool(n: Node) -> dict[str, Expr]:
    """A MaxPool, whose padding is less than any number."""
    axes = _axes(n, "ksize")
    image, padding = _padded(n, axes, arranged(n.input, n.data_format, channels_first(n.data_format)), -math.inf)
    return {"output": _pooled(n, axes, image, std.MaxPool, **padding)}


@lowers(MaxPoolWithArgmax, repeatable=True)
def max_pool_with_argmax(n: Node) -> dict[str, Expr]:
    """A MaxPool, which counts places over images with their channels first, and over all of them."""
    b = n.builder
    largest, where = window_maxima(n, _axes(n, "ksize"), arranged(n.input, "NHWC", "NCHW"))
    rows, columns, channels = (b.sizes([n.size(symbol)]) for symbol in "HWC")
    area = rows * columns
    plane, place = where / area, where % area
    if n.include_batch_in_index:
        place = plane / channels * area + place
    place = place * channels + plane % channels
    return {"output": arranged(largest, "NCHW", "NHWC"), "argmax": arranged(place, "NCHW", "NHWC").cast(n.Targmax)}


@lowers(AvgPool, AvgPool3D, repeatable=True)
def avg_pool(n: Node) -> dict[str, Expr]:
    """An AveragePool; where the image gets its padding first, over the share of each window that lies on the image."""
    axes, value = _axes(n, "ksize"), n.operand(n.op.inputs[0].name)
    if value.dtype == ir.DataType.DOUBLE:
        what = f"dtype float32 or a half (onnxruntime has no {std.AveragePool.op_type} in float64)"
        raise n.unsupported(n.op.inputs[0].name, what, "float64")
    plain = arranged(value, n.data_format, channels_first(n.data_format))
    image, padding = _padded(n, axes, plain)
    result = _pooled(n, axes, image, std.AveragePool, count_include_pad=0, **padding)
    if image is not plain:
        ones, _ = _padded(n, axes, n.builder.zeros_like(plain) + 1)
        result = result / _pooled(n, axes, ones, std.AveragePool)
    return {"output": result}


def _pooled(n: Node, axes: list[SpatialAxis], image: Expr, op: type[std.Standard], **attributes: Any) -> Expr:
    sizes = {"kernel_shape": [axis.kernel for axis in axes], "strides": [axis.stride for axis in axes]}
    result = n.builder.op(op, image, **sizes, **attributes)
    return arranged(result, channels_first(n.data_format), n.data_format)
