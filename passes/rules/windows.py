"""Lowering of convolutions and poolings.

Symbols: N batch, D x H x W the volume or image with C channels,
A x R x S the filter with I input channels (C, or C over the number of groups), O x P x Q the windows, K the channels of
the result; M those that a depthwise convolution makes of each one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import FLOATS, RawOp
from lstm_lower.passes.formulas.sizes import Size
from lstm_lower.passes.formulas.spatial import Margins, arranged, channels_first, margins, padded
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.spatial import SYMBOLS, SpatialAxis, SpatialOp, check_windows, window_axes


def window_margins(n: Node, axes: Sequence[SpatialAxis]) -> list[Margins]:
    """The margins of each axis of a node's image, whose sizes and numbers of windows its operands have."""
    images, _, counts = SYMBOLS[len(axes) + 2]
    pairs = zip(axes, images, counts, strict=True)
    return [margins(axis, n.size(size), n.size(count)) for axis, size, count in pairs]


def window_margin(n: Node, axes: Sequence[SpatialAxis], at: int) -> tuple[Size, Size]:
    """The padding before and after the `at`-th of the axes of a node's image that windows slide along."""
    axis = axes[at]
    if axis.padding != "SAME":
        return axis.explicit
    size = n.size(SYMBOLS[len(axes) + 2][0][at])
    windows = axis.output_size(size) if isinstance(size, int) else (size + (axis.stride - 1)) / axis.stride
    place = margins(axis, size, windows)
    after = place.after
    # Elements that no window covers do not count as padding.
    return place.before, max(after, 0) if isinstance(after, int) else after


def window_padding(n: Node, axes: Sequence[SpatialAxis]) -> dict[str, Any] | None:
    """The padding as attributes; `None` where it depends on sizes that are not known."""
    if axes[0].padding == "VALID":
        return {}
    sizes = [n.call.sizes.get(symbol) for symbol in SYMBOLS[len(axes) + 2][0]]
    known = all(axis.stride == 1 or isinstance(size, int) for axis, size in zip(axes, sizes, strict=True))
    if axes[0].padding == "SAME" and not known:
        return None
    places = [window_margin(n, axes, at) for at in range(len(axes))]
    return {"pads": [place[side] for side in (0, 1) for place in places]}


def window_maxima(n: Node, b: Builder, axes: Sequence[SpatialAxis], image: Expr) -> list[Expr]:
    """The largest element of each window of an image with its channels first, and the places of these.

    Like TensorFlow's kernels, onnxruntime's takes the first of equal elements. A place is a number of an element in the
    order in which all of the image's lie.
    """
    padding = window_padding(n, axes)
    if padding is None:
        # onnxruntime places windows wrongly where that leaves out elements at both ends.
        if any(axis.kernel + 1 < axis.stride for axis in axes):
            what = "at most one element between windows (padding SAME, of an image whose sizes are not known)"
            raise n.unsupported("attribute strides", what, [axis.stride for axis in axes])
        padding = {"auto_pad": "SAME_UPPER"}
    kernel, strides = [axis.kernel for axis in axes], [axis.stride for axis in axes]
    return b.ops(std.MaxPool, image, outputs=2, kernel_shape=kernel, strides=strides, **padding)


def check_float32(n: Node, operand: str, op: type[std.Standard]) -> None:
    """Refuses float64, for which onnxruntime has none of the sliding operators.

    Raises:
        UnsupportedOpError: the operand is in float64.
    """
    if getattr(n, operand).dtype == ir.DataType.DOUBLE:
        raise n.unsupported(operand, f"dtype float32 or a half (onnxruntime has no {op.op_type} in float64)", "float64")


class _Windows(SpatialOp, RawOp, abstract=True):
    """An image or a volume that windows slide over.

    Attributes:
        vectors: the attributes that hold a number for each axis.
    """

    vectors: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def verify(cls, call: Call) -> None:
        """The vectors have a number for each axis."""
        check_windows(call, *cls.vectors)


class _Convolution(_Windows, abstract=True):
    vectors = ("strides", "dilations")

    @classmethod
    def verify(cls, call: Call) -> None:
        """The channels of the image are the filter's, once for each group; so many groups share out the results."""
        super().verify(call)
        whole, part, made = (call.sizes.get(symbol) for symbol in "CIK")
        if not isinstance(whole, int) or not isinstance(part, int):
            return
        groups = whole // part if part else 0
        if groups == 0 or whole % part or (isinstance(made, int) and made % groups):
            raise call.error("filter", f"input channels that divide {whole} (of the image)", part)


class Conv2D(_Convolution, input="N H W C", filter="R S I K", T=FLOATS):
    """The sum over each window of an image times a filter, for each channel of the result."""


class Conv3D(_Convolution, input="N D H W C", filter="A R S I K"):
    """The sum over each window of a volume times a filter, for each channel of the result."""


@lowers(Conv2D, Conv3D, repeatable=True)
def convolution(n: Node, b: Builder) -> Expr:
    """A Conv; the number of groups follows from the channels of image and filter."""
    whole, part = n.size("C"), n.size("I")
    # Where one is open, one group: onnxruntime compares the channels.
    groups = max(whole // max(part, 1), 1) if isinstance(whole, int) and isinstance(part, int) else 1
    spatial = range(len(n.data_format) - 2)
    return _convolved(n, b, n.filter.transpose(len(spatial) + 1, len(spatial), *spatial), groups)


class DepthwiseConv2dNative(_Windows, input="N H W C", filter="R S C M"):
    """A convolution with filters of its own for each channel of the image."""

    vectors = ("strides", "dilations")


@lowers(DepthwiseConv2dNative, repeatable=True)
def depthwise_convolution(n: Node, b: Builder) -> Expr:
    """A Conv with a group for each channel of the image."""
    channels, multiplier = n.size("C"), n.size("M")
    if not isinstance(channels, int) or not isinstance(multiplier, int):
        raise n.unsupported("filter", "known numbers of channels", "unknown ones")
    weights = n.filter.reshape(0, 0, 1, channels * multiplier).transpose(3, 2, 0, 1)
    return _convolved(n, b, weights, channels)


def _convolved(n: Node, b: Builder, weights: Expr, groups: int) -> Expr:
    check_float32(n, "input", std.Conv)
    axes = _axes(n, "filter")
    image = arranged(n.input, n.data_format, channels_first(n.data_format))
    image, padding = _padded(n, axes, image)
    result = b.op(
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


class _Pooling(_Windows, abstract=True):
    vectors = ("ksize", "strides")


class MaxPool(_Pooling, input="N H W C", T=FLOATS, data_format=("NHWC", "NCHW")):
    """The maximum of each window."""


class MaxPoolV2(_Windows, input="N H W C", ksize="4", strides="4", T=FLOATS, data_format=("NHWC", "NCHW")):
    """The maximum of each window, whose sizes are operands."""

    vectors = ("ksize", "strides")
    static_operands = ("ksize", "strides")


class _VolumePooling(_Windows, abstract=True, input="N D H W C"):
    vectors = ("ksize", "strides")


class MaxPool3D(_VolumePooling):
    """The maximum of each window of a volume."""


@lowers(MaxPool, MaxPoolV2, MaxPool3D, repeatable=True)
def max_pool(n: Node, b: Builder) -> Expr:
    """A MaxPool, whose padding is less than any number."""
    axes = _axes(n, "ksize")
    image, padding = _padded(n, axes, arranged(n.input, n.data_format, channels_first(n.data_format)), -math.inf)
    return _pooled(n, b, axes, image, std.MaxPool, **padding)


class MaxPoolWithArgmax(_Windows, input="N H W C", T=FLOATS):
    """The maximum of each window and its place in the image, the first of equal ones.

    A place is the number of an element, counted row by row over the image's channels: in its own image, or with
    `include_batch_in_index` in all of them.
    """

    vectors = ("ksize", "strides")


@lowers(MaxPoolWithArgmax, repeatable=True)
def max_pool_with_argmax(n: Node, b: Builder) -> list[Expr]:
    """A MaxPool, which counts places over images with their channels first, and over all of them."""
    largest, where = window_maxima(n, b, _axes(n, "ksize"), arranged(n.input, "NHWC", "NCHW"))
    rows, columns, channels = (b.sizes([n.size(symbol)]) for symbol in "HWC")
    area = rows * columns
    plane, place = where / area, where % area
    if n.include_batch_in_index:
        place = plane / channels * area + place
    place = place * channels + plane % channels
    return [arranged(largest, "NCHW", "NHWC"), arranged(place, "NCHW", "NHWC").cast(n.Targmax)]


class AvgPool(_Pooling, value="N H W C"):
    """The mean of each window, to which the padding does not belong."""


class AvgPool3D(_VolumePooling):
    """The mean of each window of a volume, to which the padding does not belong."""


@lowers(AvgPool, AvgPool3D, repeatable=True)
def avg_pool(n: Node, b: Builder) -> Expr:
    """An AveragePool; where the image gets its padding first, over the share of each window that lies on the image."""
    axes, value = _axes(n, "ksize"), n.operand(n.op.inputs[0].name)
    if value.dtype == ir.DataType.DOUBLE:
        what = f"dtype float32 or a half (onnxruntime has no {std.AveragePool.op_type} in float64)"
        raise n.unsupported(n.op.inputs[0].name, what, "float64")
    plain = arranged(value, n.data_format, channels_first(n.data_format))
    image, padding = _padded(n, axes, plain)
    result = _pooled(n, b, axes, image, std.AveragePool, count_include_pad=0, **padding)
    if image is not plain:
        ones, _ = _padded(n, axes, b.zeros_like(plain) + 1)
        result = result / _pooled(n, b, axes, ones, std.AveragePool)
    return result


def _pooled(
    n: Node, b: Builder, axes: list[SpatialAxis], image: Expr, op: type[std.Standard], **attributes: Any
) -> Expr:
    sizes = {"kernel_shape": [axis.kernel for axis in axes], "strides": [axis.stride for axis in axes]}
    result = b.op(op, image, **sizes, **attributes)
    return arranged(result, channels_first(n.data_format), n.data_format)
