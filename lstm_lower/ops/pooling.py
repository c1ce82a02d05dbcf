"""Definitions of the gradients of TensorFlow's poolings of images and volumes.

Symbols: N batch, D x H x W the volume or image, O x P x Q the windows, C channels.
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


class _PoolingGradient(SpatialOp, abstract=True):
    """The gradient of a pooling with respect to its image, or that of this with respect to the pooling's gradient.

    Attributes:
        windowed: the operand with an entry for each window.
    """

    windowed: ClassVar[str] = "grad"

    class Types:
        T = FLOATS

    class Attrs:
        ksize = attr(list[int])
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])
        data_format = attr(str, "NHWC", choices=FORMATS)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Windows must lie on rows and columns, and there must be one for each entry."""
        check_windows(call, "ksize", "strides")
        check_output_sizes(call, cls.windowed)


class MaxPoolGrad(_PoolingGradient):
    """Gradient of the largest element of each window: it goes to the first one of these."""

    forward = "MaxPool"

    class Inputs:
        orig_input = operand("N H W C")
        orig_output = operand("N P Q C")
        grad = operand("N P Q C")

    class Outputs:
        output = operand("N H W C")

    class Attrs(_PoolingGradient.Attrs):
        padding = attr(str, choices=PADDINGS)
        explicit_paddings = attr(list[int], [])


class _ByOperands(_PoolingGradient, abstract=True):
    """One whose sizes and strides are operands."""

    static_operands = ("ksize", "strides")

    class Inputs:
        orig_input = operand("N H W C")
        orig_output = operand("N P Q C")
        grad = operand("N P Q C")
        ksize = operand("4", "int32")
        strides = operand("4", "int32")

    class Attrs:
        padding = attr(str, choices=PADDINGS[:2])
        data_format = attr(str, "NHWC", choices=FORMATS)


class MaxPoolGradV2(_ByOperands):
    """MaxPoolGrad with sizes and strides as operands."""

    forward = "MaxPoolV2"

    class Outputs:
        output = operand("N H W C")


class MaxPoolGradWithArgmax(_PoolingGradient):
    """MaxPoolGrad where the places of the largest elements are known."""

    forward = "MaxPoolWithArgmax"

    class Types:
        T = FLOATS
        Targmax = INDEX

    class Inputs:
        input = operand("N H W C")
        grad = operand("N P Q C")
        argmax = operand("N P Q C", "Targmax")

    class Outputs:
        output = operand("N H W C")

    class Attrs:
        ksize = attr(list[int])
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])
        include_batch_in_index = attr(bool, False)


class MaxPoolGradGrad(_PoolingGradient):
    """Gradient of MaxPoolGrad: the element of `grad` at the place of each window's largest one."""

    forward = "MaxPoolGrad"
    windowed = "orig_output"

    class Inputs:
        orig_input = operand("N H W C")
        orig_output = operand("N P Q C")
        grad = operand("N H W C")

    class Outputs:
        output = operand("N P Q C")


class MaxPoolGradGradV2(_ByOperands):
    """MaxPoolGradGrad with sizes and strides as operands."""

    forward = "MaxPoolGradV2"
    windowed = "orig_output"

    class Inputs(_ByOperands.Inputs):
        grad = operand("N H W C")

    class Outputs:
        output = operand("N P Q C")


class _OfVolumes(_PoolingGradient, abstract=True):
    class Types:
        T = FLOATS[:3]

    class Attrs(_PoolingGradient.Attrs):
        data_format = attr(str, "NDHWC", choices=VOLUME_FORMATS)


class MaxPool3DGrad(_OfVolumes):
    """Gradient of the largest element of each window of a volume: it goes to each one that is equal to it."""

    forward = "MaxPool3D"

    class Inputs:
        orig_input = operand("N D H W C")
        orig_output = operand("N O P Q C")
        grad = operand("N O P Q C")

    class Outputs:
        output = operand("N D H W C")


class MaxPool3DGradGrad(_OfVolumes):
    """Gradient of MaxPool3DGrad as TensorFlow has it: unlike that op it takes the first of equal elements only."""

    forward = "MaxPool3DGrad"
    windowed = "orig_output"

    class Inputs:
        orig_input = operand("N D H W C")
        orig_output = operand("N O P Q C")
        grad = operand("N D H W C")

    class Outputs:
        output = operand("N O P Q C")


class _AveragesGradient(_PoolingGradient, abstract=True):
    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the image's sizes where they are known."""
        bind_sizes(call, "orig_input_shape", call.attributes["data_format"])
        super().verify(call)


class AvgPoolGrad(_AveragesGradient):
    """Gradient of the mean of each window, to which the padding does not belong."""

    forward = "AvgPool"

    class Inputs:
        orig_input_shape = operand("4", "int32")
        grad = operand("N P Q C")

    class Outputs:
        output = operand("N H W C")


class AvgPool3DGrad(_AveragesGradient):
    """Gradient of the mean of each window of a volume, to which the padding does not belong."""

    forward = "AvgPool3D"

    class Inputs:
        orig_input_shape = operand("5", "int32")
        grad = operand("N O P Q C")

    class Outputs:
        output = operand("N D H W C")

    class Attrs(_PoolingGradient.Attrs):
        data_format = attr(str, "NDHWC", choices=VOLUME_FORMATS)
