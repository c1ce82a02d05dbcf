"""Definitions of the ops of TensorFlow's layers that keep their operand's shape, and of resized images.

Signatures: TensorFlow's raw ops of the same names. Symbols: N batch, H x W an image, C channels or classes.
"""

from __future__ import annotations

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import FLOATS, NUMBERS, RawOp


class _Biased(RawOp, abstract=True, T=NUMBERS, bias="C"):
    """A number added to each channel."""

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


class BiasAddV1(_Biased):
    """A number added to each channel, the last axis."""


class Softmax(RawOp, logits="*S C"):
    """exp(x), divided by its sum over the last axis."""


class LogSoftmax(RawOp, logits="*S C"):
    """Logarithm of the softmax over the last axis."""


class Resizing(RawOp, abstract=True, original_image="N H W C", images="N H W C", size="2", grads="N P Q C"):
    """What reads or makes images of other sizes.

    With `half_pixel_centers` a pixel is a square and its place the centre of it; with `align_corners` the corners of
    both images are the same points; without either, pixels are points and the first ones the same.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """Corners and centres cannot both be what stays."""
        if call.attributes["align_corners"] and call.attributes["half_pixel_centers"]:
            raise call.error("attribute half_pixel_centers", "false where align_corners is true", True)


class ResizeNearestNeighbor(Resizing):
    """Images of other sizes, each pixel that of the nearest place."""


class ResizeBilinear(Resizing):
    """Images of other sizes, each pixel interpolated linearly between the four around its place."""


class ResizeNearestNeighborGrad(Resizing, T=FLOATS):
    """Gradient of images of other sizes, each pixel that of the nearest place, with respect to the images."""

    forward = "ResizeNearestNeighbor"


class ResizeBilinearGrad(Resizing):
    """Gradient of linearly interpolated images with respect to the images."""

    forward = "ResizeBilinear"


class LRN(RawOp, input="N H W C"):
    """x / (bias + alpha * sum of x squared over the channels at most `depth_radius` away) ** beta.

    Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, 2012, section 3.3.
    """


class LRNGrad(RawOp, input_grads="N H W C", input_image="N H W C", output_image="N H W C"):
    """Gradient of LRN with respect to the image."""

    forward = "LRN"
