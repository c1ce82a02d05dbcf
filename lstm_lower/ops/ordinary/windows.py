"""Definitions of TensorFlow's convolutions and poolings of images and volumes.

Signatures: TensorFlow's raw ops of the same names. Symbols: N batch, D x H x W the volume or image with C channels,
A x R x S the filter with I input channels (C, or C over the number of groups), O x P x Q the windows, K the channels of
the result; M those that a depthwise convolution makes of each one.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.opdef import Call, DType, attr, operand
from lstm_lower.ops.gradients import FLOATS
from lstm_lower.ops.indexing import INDEX
from lstm_lower.spatial import (
    FORMATS,
    PADDINGS,
    SYMBOLS,
    VOLUME_FORMATS,
    SpatialOp,
    check_windows,
    window_axes,
)


class _Windows(SpatialOp, abstract=True):
    """What windows slide over.

    Attributes:
        vectors: the attributes that hold a number for each axis.
    """

    vectors: ClassVar[tuple[str, ...]] = ()

    class Types:
        T = FLOATS

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the numbers of windows where their sizes are known."""
        check_windows(call, *cls.vectors)
        image, _, counts = SYMBOLS[len(cls.placement(call)["data_format"])]
        for axis, symbol, count in zip(window_axes(call) or (), image, counts, strict=False):
            size = call.sizes.get(symbol)
            if isinstance(size, int):
                call.sizes[count] = max(axis.output_size(size), 0)


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


class Conv2D(_Convolution):
    """The sum over each window of an image times a filter, for each channel of the result."""

    class Inputs:
        input = operand("N H W C")
        filter = operand("R S I K")

    class Outputs:
        output = operand("N P Q K")

    class Attrs:
        strides = attr(list[int])
        use_cudnn_on_gpu = attr(bool, True)
        padding = attr(str, choices=PADDINGS)
        explicit_paddings = attr(list[int], [])
        data_format = attr(str, "NHWC", choices=FORMATS)
        dilations = attr(list[int], [1, 1, 1, 1])


class DepthwiseConv2dNative(_Windows):
    """A convolution with filters of its own for each channel of the image."""

    vectors = ("strides", "dilations")

    class Inputs:
        input = operand("N H W C")
        filter = operand("R S C M")

    class Outputs:
        output = operand("N P Q K")

    class Attrs:
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS)
        explicit_paddings = attr(list[int], [])
        data_format = attr(str, "NHWC", choices=FORMATS)
        dilations = attr(list[int], [1, 1, 1, 1])

    @classmethod
    def verify(cls, call: Call) -> None:
        """Each channel makes M."""
        super().verify(call)
        each, multiplier = call.sizes.get("C"), call.sizes.get("M")
        if isinstance(each, int) and isinstance(multiplier, int):
            call.sizes["K"] = each * multiplier


class Conv3D(_Convolution):
    """The sum over each window of a volume times a filter, for each channel of the result."""

    class Inputs:
        input = operand("N D H W C")
        filter = operand("A R S I K")

    class Outputs:
        output = operand("N O P Q K")

    class Attrs:
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])
        data_format = attr(str, "NDHWC", choices=VOLUME_FORMATS)
        dilations = attr(list[int], [1, 1, 1, 1, 1])


class _Pooling(_Windows, abstract=True):
    vectors = ("ksize", "strides")

    class Outputs:
        output = operand("N P Q C")

    class Attrs:
        ksize = attr(list[int])
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])
        data_format = attr(str, "NHWC", choices=FORMATS)


class MaxPool(_Pooling):
    """The maximum of each window."""

    class Inputs:
        input = operand("N H W C")

    class Attrs(_Pooling.Attrs):
        padding = attr(str, choices=PADDINGS)
        explicit_paddings = attr(list[int], [])


class MaxPoolV2(_Windows):
    """The maximum of each window, whose sizes are operands."""

    vectors = ("ksize", "strides")
    static_operands = ("ksize", "strides")

    class Inputs:
        input = operand("N H W C")
        ksize = operand("4", "int32")
        strides = operand("4", "int32")

    class Outputs:
        output = operand("N P Q C")

    class Attrs:
        padding = attr(str, choices=PADDINGS[:2])
        data_format = attr(str, "NHWC", choices=FORMATS)


class MaxPoolWithArgmax(_Windows):
    """The maximum of each window and its place in the image, the first of equal ones.

    A place is the number of an element, counted row by row over the image's channels: in its own image, or with
    `include_batch_in_index` in all of them.
    """

    vectors = ("ksize", "strides")

    class Types:
        T = FLOATS
        Targmax = INDEX

    class Inputs:
        input = operand("N H W C")

    class Outputs:
        output = operand("N P Q C")
        argmax = operand("N P Q C", "Targmax")

    class Attrs:
        ksize = attr(list[int])
        strides = attr(list[int])
        Targmax = attr(DType, DType.INT64, choices=(DType.INT32, DType.INT64))
        padding = attr(str, choices=PADDINGS[:2])
        include_batch_in_index = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The attribute says the places' dtype."""
        super().verify(call)
        call.types["Targmax"] = call.attributes["Targmax"]


class AvgPool(_Pooling):
    """The mean of each window, to which the padding does not belong."""

    class Inputs:
        value = operand("N H W C")


class _VolumePooling(_Windows, abstract=True):
    vectors = ("ksize", "strides")

    class Inputs:
        input = operand("N D H W C")

    class Outputs:
        output = operand("N O P Q C")

    class Attrs:
        ksize = attr(list[int])
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])
        data_format = attr(str, "NDHWC", choices=VOLUME_FORMATS)


class MaxPool3D(_VolumePooling):
    """The maximum of each window of a volume."""

    class Types:
        T = FLOATS[:3]


class AvgPool3D(_VolumePooling):
    """The mean of each window of a volume, to which the padding does not belong."""
