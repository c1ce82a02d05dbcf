"""Lowering of the ops that sample images anew, cut patches out of them and change their colours.

Symbols: N batch, H x W an image, D x H x W a volume, C channels,
P x Q the result's pixels, K patches' entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import NUMBERS, RawOp
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import INT64, padded, reshape_to
from lstm_lower.passes.formulas.sizes import Size, at_least, divided, up_to, wide
from lstm_lower.passes.formulas.spatial import margins
from lstm_lower.passes.formulas.special_functions import rounded
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.passes.rules.networks import Resizing
from lstm_lower.passes.rules.registry import Node, lowers, widened
from lstm_lower.spatial import SpatialAxis

_FLOAT = ir.DataType.FLOAT


def _entry(vector: Expr, at: int) -> Expr:
    return vector.take(at)


def _sampled(images: Expr, rows: Expr, columns: Expr) -> Expr:
    """Sums of rows and of columns by the weights [P, H] and [Q, W]."""
    b = images.builder
    images = b.op(std.Einsum, rows, images, equation="ph,nhwc->npwc")
    return b.op(std.Einsum, columns, images, equation="qw,npwc->npqc")


def _numbers(size: Size, images: Expr) -> Expr:
    return up_to(images.builder, size).cast(_FLOAT)


def _cubics(n: Node, images: Expr, axis: int, made: Expr) -> Expr:
    """The weights of the four pixels around each place of an axis, as the kernels compute them [made, size].

    Those of squares leave out pixels beyond the image, those of points take its edge in their place.
    """
    b, squares = images.builder, bool(n.half_pixel_centers)
    slope = -0.5 if squares else -0.75
    size = b.sizes([images.size(axis)]).reshape()
    last = size - 1
    scale = size.cast(_FLOAT) / made.cast(_FLOAT)
    if n.align_corners:
        scale = b.where(made > 1, last.cast(_FLOAT) / (made - 1).maximum(1).cast(_FLOAT), scale)
    numbers = _numbers(made, images)
    places = (numbers + 0.5) * scale - 0.5 if squares else numbers * scale
    below = places.floor()
    beyond = b.op(std.Round, (places - below) * 1024.0) / 1024.0
    weights = []
    for step in (-1, 0, 1, 2):
        # How far the pixel lies from the place.
        x = beyond + 1.0 if step == -1 else beyond if step == 0 else step - beyond
        near = ((x * (slope + 2) - (slope + 3)) * x) * x + 1.0
        far = ((x * slope - 5 * slope) * x + 8 * slope) * x - 4 * slope
        pixel = below.cast(INT64) + step
        bounded = pixel.maximum(0).minimum(last)
        weight = far if step in (-1, 2) else near
        weight = b.where(pixel.equals(bounded), weight, 0.0) if squares else weight
        here = bounded.unsqueeze(1).equals(up_to(b, size)).cast(_FLOAT)
        weights.append((weight, here))
    total = sum((weight for weight, _ in weights[1:]), weights[0][0])
    parts = [(weight / total if squares else weight).unsqueeze(1) * here for weight, here in weights]
    return sum(parts[1:], parts[0])


def _bicubic(n: Node, images: Expr, made: list[Expr]) -> Expr:
    return _sampled(images, *(_cubics(n, images, axis, size) for axis, size in zip((1, 2), made, strict=True)))


class ResizeBicubic(Resizing):
    """Images of other sizes, each pixel interpolated by cubics through the sixteen around its place.

    Keys, Cubic convolution interpolation, 1981, with a slope of -0.5 at the neighbours where pixels are squares
    (`half_pixel_centers`), else of -0.75; places are rounded to 1024ths of a pixel.
    """


@lowers(ResizeBicubic, repeatable=True)
def resize_bicubic(n: Node, _: Builder) -> Expr:
    """Interpolated in float32."""
    size = wide(n.operand("size"))
    return _bicubic(n, n.images.cast(_FLOAT), [_entry(size, at) for at in (0, 1)])


def result_sizes(n: Node, b: Builder) -> list[Expr]:
    """Rows and columns of the result whose gradient a node has."""
    return [b.sizes([n.grads.size(axis)]).reshape() for axis in (1, 2)]


class ResizeBicubicGrad(Resizing):
    """Gradient of images interpolated by cubics with respect to the images."""


@lowers(ResizeBicubicGrad, repeatable=True)
def resize_bicubic_grad(n: Node, b: Builder) -> Expr:
    """Each pixel's gradient, shared out among those that it was interpolated from."""
    image = n.original_image.cast(_FLOAT)
    return pullback(b, [_bicubic(n, image, result_sizes(n, b))], [image], [n.grads])[0].cast(n.original_image.dtype)


class ResizeArea(Resizing, align_corners=(False,)):
    """Images of other sizes, each pixel the mean of the area that it covers."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Nothing else."""


@lowers(ResizeArea, repeatable=True)
def resize_area(n: Node, b: Builder) -> Expr:
    """Pixels weighed by how much of them lies in the area."""
    images, weights = n.images.cast(_FLOAT), []
    for axis in (1, 2):
        size, made = images.size(axis), _entry(wide(n.operand("size")), axis - 1)
        scale = b.sizes([size]).reshape().cast(_FLOAT) / made.cast(_FLOAT)
        start, pixel = _numbers(made, images).unsqueeze(1), _numbers(size, images)
        covered = ((start + 1.0) * scale).minimum(pixel + 1.0) - (start * scale).maximum(pixel)
        weights.append(covered.maximum(0.0) / scale)
    return _sampled(images, *weights)


def _sinc(radius: float) -> Callable[[Expr], Expr]:
    def weight(x: Expr) -> Expr:
        b, safe = x.builder, x.maximum(1e-3)
        waves = [b.op(std.Sin, safe * (math.pi / over)) for over in (1, radius)]
        value = waves[0] * waves[1] * radius / (safe * safe * math.pi**2)
        return b.where(x > 1e-3, b.where(x > radius, 0.0, value), 1.0)

    return weight


def _cubic(near: tuple[float, ...], far: tuple[float, ...]) -> Callable[[Expr], Expr]:
    """A piece by a polynomial from 0 to 1 and another one from there to 2, by coefficients from the highest on."""

    def polynomial(x: Expr, factors: tuple[float, ...]) -> Expr:
        value = x * factors[0] + factors[1]
        for factor in factors[2:]:
            value = value * x + factor
        return value

    def weight(x: Expr) -> Expr:
        b = x.builder
        return b.where(x < 1.0, polynomial(x, near), b.where(x < 2.0, polynomial(x, far), 0.0))

    return weight


# Weights by the distance from a place.
_KERNELS: dict[str, Callable[[Expr], Expr]] = {
    **{f"lanczos{radius}": _sinc(radius) for radius in (1, 3, 5)},
    "gaussian": lambda x: x.builder.where(x < 1.5, (x * x * -2.0).exp(), 0.0),
    "box": lambda x: x.builder.where(x > 0.5, 0.0, x.builder.where(x < 0.5, x.like(1.0), 0.5)),
    "triangle": lambda x: (1.0 - x).maximum(0.0),
    "keyscubic": _cubic((1.5, -2.5, 0.0, 1.0), (-0.5, 2.5, -4.0, 2.0)),
    "mitchellcubic": _cubic((7 / 6, -2.0, 0.0, 8 / 9), (-7 / 18, 2.0, -10 / 3, 16 / 9)),
}


# Radii of the windows that kernels weigh pixels in.
RADII = {
    "lanczos1": 1.0,
    "lanczos3": 3.0,
    "lanczos5": 5.0,
    "gaussian": 1.5,
    "box": 1.0,
    "triangle": 1.0,
    "keyscubic": 2.0,
    "mitchellcubic": 2.0,
}


def _weighed(n: Node, b: Builder, images: Expr, made: list[Expr]) -> Expr:
    weights = []
    for number, size in enumerate(made):
        length = b.sizes([images.size(number + 1)]).reshape().cast(_FLOAT)
        inverse = n.scale.like(1.0) / _entry(n.scale, number)
        places = (_numbers(size, images) + 0.5) * inverse - inverse * _entry(n.translation, number)
        spread = inverse.maximum(1.0) if n.antialias else inverse.like(1.0)
        away = (_numbers(images.size(number + 1), images) + 0.5 - places.unsqueeze(1)).abs() / spread
        weight = b.where(away > RADII[n.kernel_type], 0.0, _KERNELS[n.kernel_type](away))
        total = weight.sum(1, keepdims=True)
        counts = total.abs() > 1000 * float(np.finfo(np.float32).tiny)
        beyond = ((places < 0.0) | (places > length)).unsqueeze(1)
        weights.append(b.where(beyond, 0.0, weight / b.where(counts, total, 1.0)))
    return _sampled(images, *weights)


class ScaleAndTranslate(
    RawOp,
    images="N H W C",
    size="2",
    scale="2",
    translation="2",
    kernel_type=tuple(RADII),
):
    """Images stretched by `scale` and then moved by `translation`, each pixel a mean of those around its place.

    The kernel weighs them by their distance, in pixels of the images or, with `antialias`, of the result where these
    are larger; pixels beyond the images do not count.
    """


@lowers(ScaleAndTranslate, repeatable=True)
def scale_and_translate(n: Node, b: Builder) -> Expr:
    """Weighed in float32."""
    size = wide(n.operand("size"))
    return _weighed(n, b, n.images.cast(_FLOAT), [_entry(size, at) for at in (0, 1)])


class ScaleAndTranslateGrad(
    RawOp,
    grads="N P Q C",
    original_image="N H W C",
    scale="2",
    translation="2",
    kernel_type=tuple(RADII),
):
    """Gradient of ScaleAndTranslate with respect to the images."""


@lowers(ScaleAndTranslateGrad, repeatable=True)
def scale_and_translate_grad(n: Node, b: Builder) -> Expr:
    """By the same weights the other way."""
    image = n.original_image
    return pullback(b, [_weighed(n, b, image, result_sizes(n, b))], [image], [n.grads])[0]


def _windows(image: Expr, at: int, axis: SpatialAxis) -> Expr:
    """The elements of all windows along an axis: [..., windows, kernel, ...]."""
    b, size = image.builder, image.size(at)
    count: Size = divided(size + (axis.stride - 1), axis.stride)
    if axis.padding == "VALID":
        count = divided(size - axis.extent, axis.stride) + 1
    place = margins(axis, size, count)
    image = padded(image, {at: (place.before, at_least(place.after, 0))})
    starts = up_to(b, count).unsqueeze(1) * axis.stride
    return image.take(starts + b.constant(np.arange(axis.kernel) * axis.dilation, INT64), axis=at)


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


@lowers(ExtractImagePatches, ExtractVolumePatches, repeatable=True)
def extract_patches(n: Node, b: Builder) -> Expr:
    """Windows along one axis after the other, then all windows, and behind them what they hold."""
    axes = n.op.axes(n.call.attributes)
    image, rank = computed(n.moved(n.op.inputs[0].name)), len(axes)
    for number, axis in enumerate(axes):
        image = _windows(image, 1 + 2 * number, axis)
    image = image.transpose(0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1)
    entries = b.sizes([image.size(2 * rank + 1)]) * math.prod(axis.kernel for axis in axes)
    return reshape_to(image, concat([b.sizes([image.size(at)]) for at in range(rank + 1)] + [entries], 0))


def _within(n: Node, b: Builder, places: Expr, size: Expr) -> Expr:
    """Places on the image that those beyond it mean."""
    last, length = (size - 1).cast(_FLOAT), size.cast(_FLOAT)
    if n.fill_mode == "CONSTANT":
        return places
    if n.fill_mode == "REFLECT":
        # Whole turns to the front and back again do not count.
        twice = length * 2.0
        before = places + twice * (-places / twice).floor()
        before = b.where(before < -length, before + twice, -before - 1.0)
        behind = places - twice * (places / twice).floor()
        behind = b.where(behind < length, behind, twice - behind - 1.0)
        places = b.where(places < 0.0, before, b.where(places > last, behind, places))
    if n.fill_mode == "WRAP":
        around = last.maximum(1.0)
        before = places + length * ((-places / around).floor() + 1.0)
        behind = places - length * (places / around).floor()
        places = b.where(places < 0.0, before, b.where(places > last, behind, places))
    return places.maximum(0.0).minimum(last)


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


@lowers(ImageProjectiveTransformV2, ImageProjectiveTransformV3, repeatable=True)
def image_projective_transform(n: Node, b: Builder) -> Expr:
    """Pixels by their numbers; the ones beyond the image are one behind the last."""
    images = computed(n.moved("images"))
    images = images if images.dtype.is_floating_point() else images.cast(ir.DataType.DOUBLE)
    count, height, width, channels = (b.sizes([n.images.size(axis)]) for axis in range(4))
    sizes, letters = wide(n.output_shape), [n.transforms.slice(at, at + 1, axis=1).unsqueeze(2) for at in range(8)]
    y, x = (_numbers(_entry(sizes, at), n.transforms) for at in (0, 1))
    y = y.unsqueeze(1)

    def line(first: int) -> Expr:
        made: Expr = letters[first] * x + letters[first + 1] * y
        return made

    depth = line(6) + 1.0
    gone = depth.equals(0.0)
    across, down = (
        _within(n, b, (line(first) + letters[first + 2]) / b.where(gone, 1.0, depth), size.reshape())
        for first, size in ((0, width), (3, height))
    )
    fill = n.get("fill_value", 0.0)
    fill = fill.cast(images.dtype) if isinstance(fill, Expr) else images.like(fill)
    flat = reshape_to(images, concat([count * height * width, channels], 0))
    starts = (up_to(b, count) * (height * width)).unsqueeze(1, 2)

    def read(row: Expr, column: Expr) -> Expr:
        inside = [~(at < 0.0) & (at < size.cast(_FLOAT)) for at, size in ((row, height), (column, width))]
        inside_both = b.op(std.And, *inside)
        at = [b.where(inside_both, x, 0.0).cast(INT64) for x in (row, column)]
        pixels = flat.take(starts + at[0] * width + at[1])
        seen = (inside_both & ~gone).unsqueeze(3)
        return b.where(seen, pixels, fill)

    if n.interpolation == "NEAREST":
        made_image = read(rounded(down), rounded(across))
    else:
        top, left = down.floor(), across.floor()
        bottom, right = top + 1.0, left + 1.0

        def share(part: Expr) -> Expr:
            return part.unsqueeze(3).cast(images.dtype)

        above, below = (
            share(right - across) * read(row, left) + share(across - left) * read(row, right) for row in (top, bottom)
        )
        made_image = share(bottom - down) * above + share(down - top) * below
        made_image = b.where(gone.unsqueeze(3), fill, made_image)
    return made_image.cast(n.moved("images").dtype)


def _channels(pixels: Expr) -> list[Expr]:
    return [pixels.slice(at, at + 1, axis=-1) for at in range(3)]


def _hue(rgb: Expr) -> list[Expr]:
    """Hue, saturation and value, each with an axis of size 1 in place of the three colours."""
    b = rgb.builder
    red, green, blue = _channels(rgb)
    value = red.maximum(green).maximum(blue)
    extent = value - red.minimum(green).minimum(blue)
    saturation = b.where(value > 0.0, extent / b.where(value > 0.0, value, 1.0), 0.0)
    sixth = rgb.like(1.0) / (b.where(extent > 0.0, extent, 1.0) * 6.0)
    hue = b.where(
        red.equals(value),
        (green - blue) * sixth,
        b.where(green.equals(value), (blue - red) * sixth + 2 / 6, (red - green) * sixth + 4 / 6),
    )
    hue = b.where(extent > 0.0, hue, 0.0)
    return [b.where(hue < 0.0, hue + 1.0, hue), saturation, value]


def _coloured(hue: Expr, saturation: Expr, value: Expr) -> Expr:
    six = hue * 6.0
    distances = [(six - 3.0).abs() - 1.0, 2.0 - (six - 2.0).abs(), 2.0 - (six - 4.0).abs()]
    plain = 1.0 - saturation
    return concat([(plain + saturation * x.maximum(0.0).minimum(1.0)) * value for x in distances], -1)


class RGBToHSV(RawOp, images="*S 3"):
    """Red, green and blue of each pixel as hue, saturation and value, of which hue goes once round from 0 to 1."""


@lowers(RGBToHSV, repeatable=True)
def rgb_to_hsv(n: Node, _: Builder) -> Expr:
    """By the largest of the three colours."""
    return concat(_hue(widened(n.images)), -1)


class HSVToRGB(RawOp, images="*S 3"):
    """Hue, saturation and value of each pixel as red, green and blue."""


@lowers(HSVToRGB, repeatable=True)
def hsv_to_rgb(n: Node, _: Builder) -> Expr:
    """Each colour by the distance of its hue."""
    return _coloured(*_channels(widened(n.images)))


class AdjustHue(RawOp, images="*S 3", delta=""):
    """Pixels with `delta` added to their hue."""


@lowers(AdjustHue, repeatable=True)
def adjust_hue(n: Node, _: Builder) -> Expr:
    """Turned, and back to less than once round."""
    hue, saturation, value = _hue(n.images)
    turned = hue + n.delta
    return _coloured(turned - turned.floor(), saturation, value)


class AdjustSaturation(RawOp, images="*S 3", scale=""):
    """Pixels with their saturation multiplied by `scale`, at most 1."""


@lowers(AdjustSaturation, repeatable=True)
def adjust_saturation(n: Node, _: Builder) -> Expr:
    """Within 0 and 1."""
    hue, saturation, value = _hue(n.images)
    return _coloured(hue, (saturation * n.operand("scale")).maximum(0.0).minimum(1.0), value)


class AdjustContrastv2(RawOp, images="*S H W C", contrast_factor=""):
    """The distance of each pixel from the mean of its image and channel, multiplied by `contrast_factor`."""


@lowers(AdjustContrastv2, repeatable=True)
def adjust_contrast(n: Node, _: Builder) -> Expr:
    """By the mean over rows and columns."""
    mean = n.images.reduce(std.ReduceMean, (-3, -2))
    return (n.images - mean) * n.contrast_factor + mean
