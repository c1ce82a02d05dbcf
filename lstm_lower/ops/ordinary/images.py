"""Definitions of TensorFlow's ops that sample images anew, cut patches out of them and change their colours.

Signatures: TensorFlow's raw ops of the same names. Symbols: N batch, H x W an image, D x H x W a volume, C channels,
P x Q the result's pixels, K patches' entries.
"""

from __future__ import annotations

from typing import Any

from lstm_lower.opdef import Call
from lstm_lower.ops.ordinary.networks import Resizing
from lstm_lower.ops.raw import NUMBERS, RawOp
from lstm_lower.spatial import SpatialAxis

# Radius of the window that a kernel weighs pixels in.
KERNELS = {
    "lanczos1": 1.0,
    "lanczos3": 3.0,
    "lanczos5": 5.0,
    "gaussian": 1.5,
    "box": 1.0,
    "triangle": 1.0,
    "keyscubic": 2.0,
    "mitchellcubic": 2.0,
}
FILL_MODES = ("CONSTANT", "REFLECT", "WRAP", "NEAREST")


class ResizeBicubic(Resizing):
    """Images of other sizes, each pixel interpolated by cubics through the sixteen around its place.

    Keys, Cubic convolution interpolation, 1981, with a slope of -0.5 at the neighbours where pixels are squares
    (`half_pixel_centers`), else of -0.75; places are rounded to 1024ths of a pixel.
    """


class ResizeBicubicGrad(Resizing):
    """Gradient of images interpolated by cubics with respect to the images."""

    forward = "ResizeBicubic"


class ResizeArea(Resizing, align_corners=(False,)):
    """Images of other sizes, each pixel the mean of the area that it covers."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Nothing else."""


class ScaleAndTranslate(
    RawOp,
    images="N H W C",
    size="2",
    scale="2",
    translation="2",
    kernel_type=("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"),
):
    """Images stretched by `scale` and then moved by `translation`, each pixel a mean of those around its place.

    The kernel weighs them by their distance, in pixels of the images or, with `antialias`, of the result where these
    are larger; pixels beyond the images do not count.
    """


class ScaleAndTranslateGrad(
    RawOp,
    grads="N P Q C",
    original_image="N H W C",
    scale="2",
    translation="2",
    kernel_type=("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"),
):
    """Gradient of ScaleAndTranslate with respect to the images."""

    forward = "ScaleAndTranslate"


class _Patches(RawOp, abstract=True):
    """Windows that slide over the axes between batch and channels of the only operand."""

    @classmethod
    def axes(cls, attributes: Any) -> list[SpatialAxis]:
        """How the windows slide along rows, columns and the like."""
        sizes, strides, padding = (attributes[name] for name in ("ksizes", "strides", "padding"))
        rates = attributes.get("rates", [1] * len(sizes))
        return [
            SpatialAxis(*placed, padding, (0, 0))
            for placed in zip(sizes[1:-1], strides[1:-1], rates[1:-1], strict=True)
        ]

    @classmethod
    def verify(cls, call: Call) -> None:
        """Windows slide over these axes alone."""
        (images,) = cls.inputs
        assert images.spec is not None
        rank = len(images.spec.dims)
        for name in ("ksizes", "strides", "rates"):
            given = call.attributes.get(name, [1] * rank)
            if len(given) != rank or given[0] != 1 or given[-1] != 1 or min(given) < 1:
                raise call.error(f"attribute {name}", f"{rank} numbers above 0, the first and the last 1", given)


class ExtractImagePatches(_Patches, images="N H W C", T=NUMBERS):
    """Windows that slide over images, each laid out in one row: its rows, columns and channels."""


class ExtractVolumePatches(_Patches, input="N D H W C"):
    """Windows that slide over volumes, each laid out in one row: its slices, rows, columns and channels."""


class ImageProjectiveTransformV2(
    RawOp,
    images="N H W C",
    transforms="M 8",
    output_shape="2",
    interpolation=("NEAREST", "BILINEAR"),
    fill_mode=("CONSTANT", "REFLECT", "WRAP", "NEAREST"),
):
    """Images seen through a projection: the pixel (x, y) is that at (a x + b y + c, d x + e y + f) / (g x + h y + 1).

    Of the letters a to h there is a row for each image, or one for all. `fill_mode` says what lies beyond an image:
    zeros, itself as in a mirror, itself anew, or its edge.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """One projection, or one for each image."""
        images, rows = call.sizes.get("N"), call.sizes.get("M")
        if isinstance(images, int) and isinstance(rows, int) and rows not in (1, images):
            raise call.error("transforms", f"1 or {images} rows (one for each image)", rows)


class ImageProjectiveTransformV3(ImageProjectiveTransformV2, fill_value=""):
    """ImageProjectiveTransformV2 with a number in place of the zeros."""


class RGBToHSV(RawOp, images="*S 3"):
    """Red, green and blue of each pixel as hue, saturation and value, of which hue goes once round from 0 to 1."""


class HSVToRGB(RawOp, images="*S 3"):
    """Hue, saturation and value of each pixel as red, green and blue."""


class AdjustHue(RawOp, images="*S 3", delta=""):
    """Pixels with `delta` added to their hue."""


class AdjustSaturation(RawOp, images="*S 3", scale=""):
    """Pixels with their saturation multiplied by `scale`, at most 1."""


class AdjustContrastv2(RawOp, images="*S H W C", contrast_factor=""):
    """The distance of each pixel from the mean of its image and channel, multiplied by `contrast_factor`."""
