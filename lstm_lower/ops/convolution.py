"""Definitions of the gradients of TensorFlow's convolutions of images and volumes.

Symbols: N batch, D x H x W the volume or image with C channels, A x R x S the filter with I input channels (C, or C
over the number of groups), O x P x Q the windows, K the channels of the result; M those that a depthwise convolution
makes of each one.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import FLOATS, RawOp
from lstm_lower.spatial import (
    SpatialOp,
    bind_sizes,
    check_output_sizes,
    check_windows,
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

    forward = "Conv2D"
    vector = "input_sizes"


class Conv2DBackpropFilter(_ConvolutionGradient, input="N H W C", filter_sizes="4", out_backprop="N P Q K"):
    """Gradient of a convolution with respect to its filter."""

    forward = "Conv2D"
    vector = "filter_sizes"
    vector_symbols = "RSIK"


class Conv3DBackpropInputV2(_ConvolutionGradient, input_sizes="5", filter="A R S I K", out_backprop="N O P Q K"):
    """Gradient of a convolution with respect to its volume; also what a transposed convolution is."""

    forward = "Conv3D"
    vector = "input_sizes"


class Conv3DBackpropFilterV2(_ConvolutionGradient, input="N D H W C", filter_sizes="5", out_backprop="N O P Q K"):
    """Gradient of a convolution of volumes with respect to its filter."""

    forward = "Conv3D"
    vector = "filter_sizes"
    vector_symbols = "ARSIK"


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

    forward = "DepthwiseConv2dNative"
    vector = "input_sizes"


class DepthwiseConv2dNativeBackpropFilter(_DepthwiseGradient, input="N H W C", filter_sizes="4"):
    """Gradient of a depthwise convolution with respect to its filter."""

    forward = "DepthwiseConv2dNative"
    vector = "filter_sizes"
    vector_symbols = "RSCM"
