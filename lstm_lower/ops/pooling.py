"""Definitions of the gradients of TensorFlow's poolings of images and volumes.

Symbols: N batch, D x H x W the volume or image, O x P x Q the windows, C channels.
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


class _PoolingGradient(SpatialOp, RawOp, abstract=True):
    """The gradient of a pooling with respect to its image, or that of this with respect to the pooling's gradient.

    Attributes:
        windowed: the operand with an entry for each window.
    """

    windowed: ClassVar[str] = "grad"

    @classmethod
    def verify(cls, call: Call) -> None:
        """Windows must lie on rows and columns, and there must be one for each entry."""
        check_windows(call, "ksize", "strides")
        check_output_sizes(call, cls.windowed)


class MaxPoolGrad(_PoolingGradient, orig_input="N H W C", orig_output="N P Q C", grad="N P Q C", T=FLOATS):
    """Gradient of the largest element of each window: it goes to the first one of these."""

    forward = "MaxPool"


class _ByOperands(
    _PoolingGradient, abstract=True, strides="4", orig_output="N P Q C", ksize="4", T=FLOATS, orig_input="N H W C"
):
    """One whose sizes and strides are operands."""

    static_operands = ("ksize", "strides")


class MaxPoolGradV2(_ByOperands, grad="N P Q C"):
    """MaxPoolGrad with sizes and strides as operands."""

    forward = "MaxPoolV2"


class MaxPoolGradWithArgmax(_PoolingGradient, input="N H W C", grad="N P Q C", argmax="N P Q C", T=FLOATS):
    """MaxPoolGrad where the places of the largest elements are known."""

    forward = "MaxPoolWithArgmax"


class MaxPoolGradGrad(_PoolingGradient, orig_input="N H W C", orig_output="N P Q C", grad="N H W C", T=FLOATS):
    """Gradient of MaxPoolGrad: the element of `grad` at the place of each window's largest one."""

    forward = "MaxPoolGrad"
    windowed = "orig_output"


class MaxPoolGradGradV2(_ByOperands, grad="N H W C"):
    """MaxPoolGradGrad with sizes and strides as operands."""

    forward = "MaxPoolGradV2"
    windowed = "orig_output"


class MaxPool3DGrad(_PoolingGradient, orig_input="N D H W C", orig_output="N O P Q C", grad="N O P Q C"):
    """Gradient of the largest element of each window of a volume: it goes to each one that is equal to it."""

    forward = "MaxPool3D"


class MaxPool3DGradGrad(
    _PoolingGradient,
    orig_input="N D H W C",
    orig_output="N O P Q C",
    grad="N D H W C",
    T=("float16", "bfloat16", "float32"),
):
    """Gradient of MaxPool3DGrad as TensorFlow has it: unlike that op it takes the first of equal elements only."""

    forward = "MaxPool3DGrad"
    windowed = "orig_output"


class _AveragesGradient(_PoolingGradient, abstract=True):
    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the image's sizes where they are known."""
        bind_sizes(call, "orig_input_shape", call.attributes["data_format"])
        super().verify(call)


class AvgPoolGrad(_AveragesGradient, orig_input_shape="4", grad="N P Q C"):
    """Gradient of the mean of each window, to which the padding does not belong."""

    forward = "AvgPool"


class AvgPool3DGrad(_AveragesGradient, orig_input_shape="5", grad="N O P Q C"):
    """Gradient of the mean of each window of a volume, to which the padding does not belong."""

    forward = "AvgPool3D"
