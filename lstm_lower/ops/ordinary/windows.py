"""Definitions of TensorFlow's convolutions and poolings of images and volumes.

Signatures: TensorFlow's raw ops of the same names. Symbols: N batch, D x H x W the volume or image with C channels,
A x R x S the filter with I input channels (C, or C over the number of groups), O x P x Q the windows, K the channels of
the result; M those that a depthwise convolution makes of each one.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import FLOATS, RawOp
from lstm_lower.spatial import SpatialOp, check_windows


class _Windows(SpatialOp, RawOp, abstract=True):
    """What windows slide over.

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


class DepthwiseConv2dNative(_Windows, input="N H W C", filter="R S C M"):
    """A convolution with filters of its own for each channel of the image."""

    vectors = ("strides", "dilations")


class Conv3D(_Convolution, input="N D H W C", filter="A R S I K"):
    """The sum over each window of a volume times a filter, for each channel of the result."""


class _Pooling(_Windows, abstract=True):
    vectors = ("ksize", "strides")


class MaxPool(_Pooling, input="N H W C", T=FLOATS, data_format=("NHWC", "NCHW")):
    """The maximum of each window."""


class MaxPoolV2(_Windows, input="N H W C", ksize="4", strides="4", T=FLOATS, data_format=("NHWC", "NCHW")):
    """The maximum of each window, whose sizes are operands."""

    vectors = ("ksize", "strides")
    static_operands = ("ksize", "strides")


class MaxPoolWithArgmax(_Windows, input="N H W C", T=FLOATS):
    """The maximum of each window and its place in the image, the first of equal ones.

    A place is the number of an element, counted row by row over the image's channels: in its own image, or with
    `include_batch_in_index` in all of them.
    """

    vectors = ("ksize", "strides")


class AvgPool(_Pooling, value="N H W C"):
    """The mean of each window, to which the padding does not belong."""


class _VolumePooling(_Windows, abstract=True, input="N D H W C"):
    vectors = ("ksize", "strides")


class MaxPool3D(_VolumePooling):
    """The maximum of each window of a volume."""


class AvgPool3D(_VolumePooling):
    """The mean of each window of a volume, to which the padding does not belong."""
