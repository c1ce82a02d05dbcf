"""Lowering of the gradients of convolutions.

With y[p] = sum over r of x[p * stride + r * dilation - before] w[r], the filter's gradient at r is the sum over p of
dy[p] x[p * stride + r * dilation - before]: a product of matrices for each r, or for all of them a convolution of x
with dy, in which stride and dilation have changed places and batch and channels too. The image's is a transposed one.

Symbols: N batch, D x H x W the volume or image with C channels, A x R x S the filter with I input channels (C, or C
over the number of groups), O x P x Q the windows, K the channels of the result; M those that a depthwise convolution
makes of each one.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import FLOATS, RawOp
from lstm_lower.passes.formulas.sizes import Size, entries
from lstm_lower.passes.formulas.spatial import arranged, channels_first, gathered, margins, spread
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.windows import check_float32, window_margins
from lstm_lower.spatial import (
    SYMBOLS,
    SpatialAxis,
    SpatialOp,
    bind_sizes,
    check_output_sizes,
    check_windows,
    spatial_axes,
    spatial_positions,
)


class _ConvolutionGradient(SpatialOp, RawOp, abstract=True):
    """The gradient of a convolution with respect to one of its operands.

    Attributes:
        vector: the operand that holds the shape of the result.
        vector_symbols: the symbols of its entries; of an image, where it is empty.
    """

    vector: ClassVar[str] = ""
    vector_symbols: ClassVar[str] = ""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the sizes that the vector holds; channels and numbers of windows must fit."""
        check_windows(call, "strides", "dilations")
        bind_sizes(call, cls.vector, cls.vector_symbols or call.attributes["data_format"])
        cls._check_channels(call)
        check_output_sizes(call, "out_backprop")

    @classmethod
    def _check_channels(cls, call: Call) -> None:
        """The channels of the image are the filter's, once for each group; so many groups share out the results."""
        whole, part, made = (call.sizes.get(symbol) for symbol in "CIK")
        if not isinstance(whole, int) or not isinstance(part, int):
            return
        groups = whole // part if part else 0
        if groups == 0 or whole % part or (isinstance(made, int) and made % groups):
            name = "filter" if cls.vector == "input_sizes" else "filter_sizes"
            raise call.error(name, f"input channels that divide {whole} (of the image)", part)


class Conv2DBackpropInput(_ConvolutionGradient, input_sizes="4", filter="R S I K", out_backprop="N P Q K", T=FLOATS):
    """Gradient of a convolution with respect to its image; also what a transposed convolution is."""

    vector = "input_sizes"


class Conv3DBackpropInputV2(_ConvolutionGradient, input_sizes="5", filter="A R S I K", out_backprop="N O P Q K"):
    """Gradient of a convolution with respect to its volume; also what a transposed convolution is."""

    vector = "input_sizes"


@lowers(Conv2DBackpropInput, Conv3DBackpropInputV2)
def convolution_backprop_input(n: Node, _: Builder) -> Expr:
    """A transposed convolution; the number of groups follows from the channels of image and filter."""
    check_float32(n, "out_backprop", std.ConvTranspose)
    sizes = _image_sizes(n)
    channels = n.data_format.index("C")
    whole, part = sizes[channels], n.size("I")
    if not isinstance(whole, int):
        raise n.unsupported("input_sizes", "a known number of channels", "an unknown one")
    if not isinstance(part, int):
        raise n.unsupported("filter", "a known number of channels", "an unknown one")
    # ONNX takes the filter as [K, C / groups, R, S].
    return _spread(n, n.filter.transpose(*_last_first(n)), sizes, max(whole // max(part, 1), 1))


class _DepthwiseGradient(_ConvolutionGradient, abstract=True, out_backprop="N P Q K"):
    @classmethod
    def _check_channels(cls, call: Call) -> None:
        """Each channel of the image makes M."""
        each, multiplier, made = (call.sizes.get(symbol) for symbol in "CMK")
        if isinstance(each, int) and isinstance(multiplier, int):
            if isinstance(made, int) and made != each * multiplier:
                raise call.error("out_backprop", f"{each * multiplier} channels, {multiplier} for each of {each}", made)
            call.sizes["K"] = each * multiplier


class DepthwiseConv2dNativeBackpropInput(_DepthwiseGradient, input_sizes="4", filter="R S C M"):
    """Gradient of a depthwise convolution with respect to its image."""

    vector = "input_sizes"


@lowers(DepthwiseConv2dNativeBackpropInput)
def depthwise_backprop_input(n: Node, _: Builder) -> Expr:
    """A transposed convolution with a group for each channel of the image."""
    check_float32(n, "out_backprop", std.ConvTranspose)
    channels, multiplier = n.size("C"), n.size("M")
    if not isinstance(channels, int) or not isinstance(multiplier, int):
        raise n.unsupported("filter", "known numbers of channels", "unknown ones")
    weights = n.filter.reshape(0, 0, 1, channels * multiplier).transpose(*_last_first(n))
    return _spread(n, weights, _image_sizes(n), channels)


def _last_first(n: Node) -> list[int]:
    """Axes of TensorFlow's filter with its last two in front, in reverse."""
    spatial = len(n.data_format) - 2
    return [spatial + 1, spatial, *range(spatial)]


def _image_sizes(n: Node) -> list[Size]:
    sizes = entries(n.input_sizes)
    assert sizes is not None
    return sizes


def _spread(n: Node, weights: Expr, sizes: list[Size], groups: int) -> Expr:
    """The transposed convolution of dy, cut to the image's size."""
    _, filters, counts = SYMBOLS[len(n.data_format)]
    kernel = [n.size(symbol) for symbol in filters]
    if not all(isinstance(size, int) for size in kernel):
        raise n.unsupported("filter", "known numbers of rows and columns", "unknown ones")
    axes = spatial_axes(n.call.attributes, [size for size in kernel if isinstance(size, int)])
    image = [sizes[position] for position in spatial_positions(n.data_format)]
    places = [margins(axis, size, n.size(count)) for axis, size, count in zip(axes, image, counts, strict=True)]
    first = channels_first(n.data_format)
    dy = arranged(n.out_backprop, n.data_format, first)
    return arranged(spread(dy, weights, axes, places, groups), first, n.data_format)


class Conv2DBackpropFilter(_ConvolutionGradient, input="N H W C", filter_sizes="4", out_backprop="N P Q K"):
    """Gradient of a convolution with respect to its filter."""

    vector = "filter_sizes"
    vector_symbols = "RSIK"


class Conv3DBackpropFilterV2(_ConvolutionGradient, input="N D H W C", filter_sizes="5", out_backprop="N O P Q K"):
    """Gradient of a convolution of volumes with respect to its filter."""

    vector = "filter_sizes"
    vector_symbols = "ARSIK"


@lowers(Conv2DBackpropFilter, Conv3DBackpropFilterV2)
def convolution_backprop_filter(n: Node, _: Builder) -> Expr:
    """A convolution of [C, N, H, W] with [K, N, P, Q]; groups share out the axis that is summed over."""
    check_float32(n, "out_backprop", std.Conv)
    *kernel, part = _filter_sizes(n)[:-1]
    channels = n.size("C")
    if not isinstance(channels, int):
        raise n.unsupported("input", "a known number of channels", "an unknown one")
    groups = max(channels // max(part, 1), 1)
    return _gathered(n, _grouped(n, groups, part), kernel, groups)


class DepthwiseConv2dNativeBackpropFilter(_DepthwiseGradient, input="N H W C", filter_sizes="4"):
    """Gradient of a depthwise convolution with respect to its filter."""

    vector = "filter_sizes"
    vector_symbols = "RSCM"


@lowers(DepthwiseConv2dNativeBackpropFilter)
def depthwise_backprop_filter(n: Node, _: Builder) -> Expr:
    """The same with a group for each channel of the image."""
    check_float32(n, "out_backprop", std.Conv)
    rows, columns, channels, multiplier = _filter_sizes(n)
    gradient = _gathered(n, _grouped(n, channels, 1), [rows, columns], channels)
    return gradient.reshape(rows, columns, channels, multiplier)


def _filter_sizes(n: Node) -> list[int]:
    known = n.filter_sizes.entries
    sizes = [size for size in known or () if isinstance(size, int)]
    if len(sizes) != len(n.data_format):
        raise n.unsupported("filter_sizes", "known sizes", "values known at run time only")
    return sizes


def _grouped(n: Node, groups: int, part: int) -> Expr:
    """The image as [C / groups, groups * N, H, W]."""
    inner = channels_first(n.data_format)[2:]
    if groups == 1:
        return arranged(n.input, n.data_format, f"CN{inner}")
    image, sizes, axes = arranged(n.input, n.data_format, f"{inner}CN"), [0] * len(inner), range(len(inner))
    if part > 1:
        image = image.reshape(*sizes, groups, part, -1).transpose(*axes, *(len(inner) + axis for axis in (1, 0, 2)))
    return image.reshape(*sizes, part, -1).transpose(len(inner), len(inner) + 1, *axes)


def _gathered(n: Node, image: Expr, kernel: list[int], groups: int) -> Expr:
    """The filter's gradient [R, S, C / groups, K]."""
    axes: list[SpatialAxis] = spatial_axes(n.call.attributes, kernel)
    places = window_margins(n, axes)
    dy = arranged(n.out_backprop, n.data_format, f"CN{channels_first(n.data_format)[2:]}")
    return gathered(image, dy, axes, places, groups, [*range(2, 2 + len(axes)), 0, 1])
