"""Definitions of the gradients of TensorFlow's convolutions of images and volumes.

Symbols: N batch, D x H x W the volume or image with C channels, A x R x S the filter with I input channels (C, or C
over the number of groups), O x P x Q the windows, K the channels of the result; M those that a depthwise convolution
makes of each one.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.opdef import Call, attr, operand
from lstm_lower.ops.gradients import FLOATS
from lstm_lower.ops.indexing import INDEX
from lstm_lower.spatial import (
    FORMATS,
    PADDINGS,
    VOLUME_FORMATS,
    SpatialOp,
    bind_sizes,
    check_output_sizes,
    check_windows,
)


class _ConvolutionGradient(SpatialOp, abstract=True):
    """The gradient of a convolution with respect to one of its operands.

    Attributes:
        vector: the operand that holds the shape of the result.
        vector_symbols: the symbols of its entries; of an image, where it is empty.
    """

    vector: ClassVar[str] = ""
    vector_symbols: ClassVar[str] = ""

    class Types:
        T = FLOATS

    class Attrs:
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS)
        explicit_paddings = attr(list[int], [])
        data_format = attr(str, "NHWC", choices=FORMATS)
        dilations = attr(list[int], [1, 1, 1, 1])

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


class Conv2DBackpropInput(_ConvolutionGradient):
    """Gradient of a convolution with respect to its image; also what a transposed convolution is."""

    forward = "Conv2D"
    vector = "input_sizes"

    class Inputs:
        input_sizes = operand("4", "int32")
        filter = operand("R S I K")
        out_backprop = operand("N P Q K")

    class Outputs:
        output = operand("N H W C")

    class Attrs(_ConvolutionGradient.Attrs):
        use_cudnn_on_gpu = attr(bool, True)


class Conv2DBackpropFilter(_ConvolutionGradient):
    """Gradient of a convolution with respect to its filter."""

    forward = "Conv2D"
    vector = "filter_sizes"
    vector_symbols = "RSIK"

    class Inputs:
        input = operand("N H W C")
        filter_sizes = operand("4", "int32")
        out_backprop = operand("N P Q K")

    class Outputs:
        output = operand("R S I K")

    class Attrs(_ConvolutionGradient.Attrs):
        use_cudnn_on_gpu = attr(bool, True)


class _VolumeGradient(_ConvolutionGradient, abstract=True):
    class Attrs:
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])
        data_format = attr(str, "NDHWC", choices=VOLUME_FORMATS)
        dilations = attr(list[int], [1, 1, 1, 1, 1])


class Conv3DBackpropInputV2(_VolumeGradient):
    """Gradient of a convolution with respect to its volume; also what a transposed convolution is."""

    forward = "Conv3D"
    vector = "input_sizes"

    class Types:
        T = FLOATS
        Tshape = INDEX

    class Inputs:
        input_sizes = operand("5", "Tshape")
        filter = operand("A R S I K")
        out_backprop = operand("N O P Q K")

    class Outputs:
        output = operand("N D H W C")


class Conv3DBackpropFilterV2(_VolumeGradient):
    """Gradient of a convolution of volumes with respect to its filter."""

    forward = "Conv3D"
    vector = "filter_sizes"
    vector_symbols = "ARSIK"

    class Inputs:
        input = operand("N D H W C")
        filter_sizes = operand("5", "int32")
        out_backprop = operand("N O P Q K")

    class Outputs:
        output = operand("A R S I K")


class _DepthwiseGradient(_ConvolutionGradient, abstract=True):
    @classmethod
    def _check_channels(cls, call: Call) -> None:
        """Each channel of the image makes M."""
        each, multiplier, made = (call.sizes.get(symbol) for symbol in "CMK")
        if isinstance(each, int) and isinstance(multiplier, int):
            if isinstance(made, int) and made != each * multiplier:
                raise call.error("out_backprop", f"{each * multiplier} channels, {multiplier} for each of {each}", made)
            call.sizes["K"] = each * multiplier


class DepthwiseConv2dNativeBackpropInput(_DepthwiseGradient):
    """Gradient of a depthwise convolution with respect to its image."""

    forward = "DepthwiseConv2dNative"
    vector = "input_sizes"

    class Inputs:
        input_sizes = operand("4", "int32")
        filter = operand("R S C M")
        out_backprop = operand("N P Q K")

    class Outputs:
        output = operand("N H W C")


class DepthwiseConv2dNativeBackpropFilter(_DepthwiseGradient):
    """Gradient of a depthwise convolution with respect to its filter."""

    forward = "DepthwiseConv2dNative"
    vector = "filter_sizes"
    vector_symbols = "RSCM"

    class Inputs:
        input = operand("N H W C")
        filter_sizes = operand("4", "int32")
        out_backprop = operand("N P Q K")

    class Outputs:
        output = operand("R S C M")
