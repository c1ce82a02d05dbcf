"""Definitions of the ops of TensorFlow's layers that keep their operand's shape, and of resized images.

Signatures: TensorFlow's raw ops of the same names. Symbols: N batch, H x W an image, C channels or classes.
"""

from __future__ import annotations

from lstm_lower.dims import Dim
from lstm_lower.dtypes import DTYPES
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import FLOATS
from lstm_lower.ops.ordinary.kinds import NUMBERS
from lstm_lower.spatial import FORMATS


class _Biased(OpDef, abstract=True):
    """A number added to each channel."""

    class Types:
        T = NUMBERS

    class Inputs:
        value = operand("*S")
        bias = operand("C")

    class Outputs:
        output = operand("*S")

    @classmethod
    def verify(cls, call: Call) -> None:
        """The bias has a number for each channel."""
        shape, channels = call.operands["value"].shape, call.sizes.get("C")
        if shape is None:
            return
        if len(shape) < 2:
            raise call.error("value", "rank 2 or more", f"rank {len(shape)}")
        last = call.attributes.get("data_format", "NHWC") == "NHWC"
        own = shape[-1] if last else shape[1]
        if isinstance(own, int) and isinstance(channels, int) and own != channels:
            raise call.error("bias", f"{own} numbers (one for each channel of value)", channels)


class BiasAdd(_Biased):
    """A number added to each channel, the last axis (NHWC) or axis 1 (NCHW)."""

    class Attrs:
        data_format = attr(str, "NHWC", choices=FORMATS)


class BiasAddV1(_Biased):
    """A number added to each channel, the last axis."""


class Softmax(OpDef):
    """exp(x), divided by its sum over the last axis."""

    class Types:
        T = FLOATS

    class Inputs:
        logits = operand("*S C")

    class Outputs:
        softmax = operand("*S C")


class LogSoftmax(OpDef):
    """Logarithm of the softmax over the last axis."""

    class Types:
        T = FLOATS

    class Inputs:
        logits = operand("*S C")

    class Outputs:
        logsoftmax = operand("*S C")


class Resizing(OpDef, abstract=True):
    """What reads or makes images of other sizes.

    With `half_pixel_centers` a pixel is a square and its place the centre of it; with `align_corners` the corners of
    both images are the same points; without either, pixels are points and the first ones the same.
    """

    class Types:
        T = FLOATS

    class Attrs:
        align_corners = attr(bool, False)
        half_pixel_centers = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Corners and centres cannot both be what stays."""
        if call.attributes["align_corners"] and call.attributes["half_pixel_centers"]:
            raise call.error("attribute half_pixel_centers", "false where align_corners is true", True)


class _ResizedTo(Resizing, abstract=True):
    """Images of the sizes that an operand holds."""

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The images' batch and channels, and the sizes asked for."""
        value = call.operands["size"].value
        rows: list[Dim] = [None, None] if value is None else [int(entry) for entry in value]
        dtype = call.types.get("T") if cls.outputs[0].dtype == "T" else DTYPES[cls.outputs[0].dtype]
        return [TensorInfo(dtype, (call.sizes.get("N"), *rows, call.sizes.get("C")))]


class Resized(_ResizedTo, abstract=True):
    """Images of any dtype, and of the sizes that an operand holds."""

    class Types:
        T = (*FLOATS, "int8", "uint8", "int16", "uint16", "int32", "int64")

    class Inputs:
        images = operand("N H W C")
        size = operand("2", "int32")


class ResizeNearestNeighbor(Resized):
    """Images of other sizes, each pixel that of the nearest place."""

    class Outputs:
        resized_images = operand(None)


class ResizeBilinear(Resized):
    """Images of other sizes, each pixel interpolated linearly between the four around its place."""

    class Outputs:
        resized_images = operand(None, "float32")


class ResizeNearestNeighborGrad(_ResizedTo):
    """Gradient of images of other sizes, each pixel that of the nearest place, with respect to the images."""

    forward = "ResizeNearestNeighbor"

    class Inputs:
        grads = operand("N P Q C")
        size = operand("2", "int32")

    class Outputs:
        output = operand(None)


class ResizeBilinearGrad(Resizing):
    """Gradient of linearly interpolated images with respect to the images."""

    forward = "ResizeBilinear"

    class Inputs:
        grads = operand("N P Q C", "float32")
        original_image = operand("N H W C")

    class Outputs:
        output = operand("N H W C")


class _Normalizing(OpDef, abstract=True):
    class Types:
        T = FLOATS[:3]

    class Outputs:
        output = operand("N H W C")

    class Attrs:
        depth_radius = attr(int, 5)
        bias = attr(float, 1.0)
        alpha = attr(float, 1.0)
        beta = attr(float, 0.5)


class LRN(_Normalizing):
    """x / (bias + alpha * sum of x squared over the channels at most `depth_radius` away) ** beta.

    Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, 2012, section 3.3.
    """

    class Inputs:
        input = operand("N H W C")


class LRNGrad(_Normalizing):
    """Gradient of LRN with respect to the image."""

    forward = "LRN"

    class Inputs:
        input_grads = operand("N H W C")
        input_image = operand("N H W C")
        output_image = operand("N H W C")
