"""Definitions of TensorFlow's ops that sample images anew, cut patches out of them and change their colours.

Signatures: TensorFlow's raw ops of the same names. Symbols: N batch, H x W an image, D x H x W a volume, C channels,
P x Q the result's pixels, K patches' entries.
"""

from __future__ import annotations

from typing import Any

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import FLOATS
from lstm_lower.ops.ordinary.bases import REAL, numbers, times
from lstm_lower.ops.ordinary.networks import Resized, Resizing
from lstm_lower.spatial import PADDINGS, SpatialAxis

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


class ResizeBicubic(Resized):
    """Images of other sizes, each pixel interpolated by cubics through the sixteen around its place.

    Keys, Cubic convolution interpolation, 1981, with a slope of -0.5 at the neighbours where pixels are squares
    (`half_pixel_centers`), else of -0.75; places are rounded to 1024ths of a pixel.
    """

    class Outputs:
        resized_images = operand(None, "float32")


class ResizeBicubicGrad(Resizing):
    """Gradient of images interpolated by cubics with respect to the images."""

    forward = "ResizeBicubic"

    class Types:
        T = FLOATS[2:]

    class Inputs:
        grads = operand("N P Q C", "float32")
        original_image = operand("N H W C")

    class Outputs:
        output = operand("N H W C")


class ResizeArea(Resized):
    """Images of other sizes, each pixel the mean of the area that it covers."""

    class Outputs:
        resized_images = operand(None, "float32")

    class Attrs:
        align_corners = attr(bool, False, choices=(False,))

    @classmethod
    def verify(cls, call: Call) -> None:
        """Nothing else."""


class _Weighing(OpDef, abstract=True):
    class Attrs:
        kernel_type = attr(str, "lanczos3", choices=tuple(KERNELS))
        antialias = attr(bool, True)


class ScaleAndTranslate(_Weighing):
    """Images stretched by `scale` and then moved by `translation`, each pixel a mean of those around its place.

    The kernel weighs them by their distance, in pixels of the images or, with `antialias`, of the result where these
    are larger; pixels beyond the images do not count.
    """

    class Types:
        T = (*FLOATS, "int8", "uint8", "int16", "uint16", "int32", "int64")

    class Inputs:
        images = operand("N H W C")
        size = operand("2", "int32")
        scale = operand("2", "float32")
        translation = operand("2", "float32")

    class Outputs:
        resized_images = operand(None, "float32")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The images' batch and channels, and the sizes asked for."""
        rows = numbers(call, "size") or (None, None)
        return [TensorInfo(DType.FLOAT, (call.sizes.get("N"), *rows, call.sizes.get("C")))]


class ScaleAndTranslateGrad(_Weighing):
    """Gradient of ScaleAndTranslate with respect to the images."""

    forward = "ScaleAndTranslate"

    class Types:
        T = ("float32",)

    class Inputs:
        grads = operand("N P Q C")
        original_image = operand("N H W C")
        scale = operand("2", "float32")
        translation = operand("2", "float32")

    class Outputs:
        output = operand("N H W C")


class _Patches(OpDef, abstract=True):
    """Windows that slide over the axes between batch and channels of the only operand."""

    class Types:
        T = REAL

    class Outputs:
        patches = operand(None)

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

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A row for each window."""
        axes, entries = cls.axes(call.attributes), call.sizes.get("C")
        counts: list[Dim] = []
        for axis, symbol in zip(axes, "DHW"[-len(axes) :], strict=True):
            size = call.sizes.get(symbol)
            counts.append(max(axis.output_size(size), 0) if isinstance(size, int) else None)
            entries = times(entries, axis.kernel)
        return [TensorInfo(call.types.get("T"), (call.sizes.get("N"), *counts, entries))]


class ExtractImagePatches(_Patches):
    """Windows that slide over images, each laid out in one row: its rows, columns and channels."""

    class Inputs:
        images = operand("N H W C")

    class Attrs:
        ksizes = attr(list[int])
        strides = attr(list[int])
        rates = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])


class ExtractVolumePatches(_Patches):
    """Windows that slide over volumes, each laid out in one row: its slices, rows, columns and channels."""

    class Inputs:
        input = operand("N D H W C")

    class Attrs:
        ksizes = attr(list[int])
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])


class ImageProjectiveTransformV2(OpDef):
    """Images seen through a projection: the pixel (x, y) is that at (a x + b y + c, d x + e y + f) / (g x + h y + 1).

    Of the letters a to h there is a row for each image, or one for all. `fill_mode` says what lies beyond an image:
    zeros, itself as in a mirror, itself anew, or its edge.
    """

    class Types:
        dtype = (*FLOATS, "uint8", "int32", "int64")

    class Inputs:
        images = operand("N H W C", "dtype")
        transforms = operand("M 8", "float32")
        output_shape = operand("2", "int32")

    class Outputs:
        transformed_images = operand(None, "dtype")

    class Attrs:
        interpolation = attr(str, choices=("NEAREST", "BILINEAR"))
        fill_mode = attr(str, "CONSTANT", choices=FILL_MODES)

    @classmethod
    def verify(cls, call: Call) -> None:
        """One projection, or one for each image."""
        images, rows = call.sizes.get("N"), call.sizes.get("M")
        if isinstance(images, int) and isinstance(rows, int) and rows not in (1, images):
            raise call.error("transforms", f"1 or {images} rows (one for each image)", rows)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The images' batch and channels, and the sizes asked for."""
        rows = numbers(call, "output_shape") or (None, None)
        return [TensorInfo(call.types.get("dtype"), (call.sizes.get("N"), *rows, call.sizes.get("C")))]


class ImageProjectiveTransformV3(ImageProjectiveTransformV2):
    """ImageProjectiveTransformV2 with a number in place of the zeros."""

    class Inputs(ImageProjectiveTransformV2.Inputs):
        fill_value = operand("", "float32")


class RGBToHSV(OpDef):
    """Red, green and blue of each pixel as hue, saturation and value, of which hue goes once round from 0 to 1."""

    class Types:
        T = FLOATS

    class Inputs:
        images = operand("*S 3")

    class Outputs:
        output = operand("*S 3")


class HSVToRGB(RGBToHSV):
    """Hue, saturation and value of each pixel as red, green and blue."""


class _Adjusting(OpDef, abstract=True):
    class Types:
        T = ("float16", "float32")

    class Outputs:
        output = operand("*S 3")


class AdjustHue(_Adjusting):
    """Pixels with `delta` added to their hue."""

    class Inputs:
        images = operand("*S 3")
        delta = operand("", "float32")


class AdjustSaturation(_Adjusting):
    """Pixels with their saturation multiplied by `scale`, at most 1."""

    class Inputs:
        images = operand("*S 3")
        scale = operand("", "float32")


class AdjustContrastv2(OpDef):
    """The distance of each pixel from the mean of its image and channel, multiplied by `contrast_factor`."""

    class Types:
        T = ("float16", "float32")

    class Inputs:
        images = operand("*S H W C")
        contrast_factor = operand("", "float32")

    class Outputs:
        output = operand("*S H W C")
