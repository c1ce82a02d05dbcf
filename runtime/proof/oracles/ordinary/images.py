"""Float64 oracles of the ops that sample images anew, cut patches out of them and change their colours.

Places are computed in float32: which pixels are the nearest depends on how they round.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle

_F = np.float32


def _keys(x: float, slope: float) -> float:
    """Keys' cubic at a distance of less than 2."""
    if x <= 1:
        return (slope + 2) * x**3 - (slope + 3) * x**2 + 1
    return slope * (x**3 - 5 * x**2 + 8 * x - 4)


def _cubics(size: int, made: int, align_corners: bool, half_pixel_centers: bool) -> Values:
    """The weights of pixels [made, size]."""
    scale = _F(size - 1) / _F(made - 1) if align_corners and made > 1 else _F(size) / _F(made)
    weights = np.zeros((made, size))
    for number in range(made):
        place = (_F(number) + _F(0.5)) * scale - _F(0.5) if half_pixel_centers else _F(number) * scale
        below = math.floor(place)
        share = round(float(_F(place - _F(below)) * _F(1024))) / 1024
        row = np.zeros(size)
        for pixel, distance in ((below - 1, 1 + share), (below, share), (below + 1, 1 - share), (below + 2, 2 - share)):
            if half_pixel_centers and not 0 <= pixel < size:
                continue
            row[min(max(pixel, 0), size - 1)] += _keys(distance, -0.5 if half_pixel_centers else -0.75)
        weights[number] = row / row.sum() if half_pixel_centers else row
    return weights


def _by(rows: Values, images: npt.ArrayLike, columns: Values) -> Values:
    return np.asarray(np.einsum("ph,nhwc,qw->npqc", rows, wide(images), columns))


@oracle("ResizeBicubic")
def resize_bicubic(
    *, images: npt.ArrayLike, size: npt.ArrayLike, align_corners: bool = False, half_pixel_centers: bool = False
) -> dict[str, Values]:
    """Sums of sixteen pixels."""
    lengths = np.shape(images)[1:3]
    rows, columns = (
        _cubics(length, made, align_corners, half_pixel_centers)
        for length, made in zip(lengths, ints(size), strict=True)
    )
    return {"resized_images": _by(rows, images, columns)}


@oracle("ResizeBicubicGrad")
def resize_bicubic_grad(
    *,
    grads: npt.ArrayLike,
    original_image: npt.ArrayLike,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> dict[str, Values]:
    """The same weights the other way."""
    pairs = zip(np.shape(original_image)[1:3], np.shape(grads)[1:3], strict=True)
    rows, columns = (_cubics(length, made, align_corners, half_pixel_centers) for length, made in pairs)
    return {"output": _by(rows.T, grads, columns.T)}


@oracle("ResizeArea")
def resize_area(*, images: npt.ArrayLike, size: npt.ArrayLike, align_corners: bool = False) -> dict[str, Values]:
    """The length of each pixel that an area holds, of the area's."""
    matrices = []
    for length, made in zip(np.shape(images)[1:3], ints(size), strict=True):
        scale, weights = length / made, np.zeros((made, length))
        for area, pixel in product(range(made), range(length)):
            weights[area, pixel] = max(min((area + 1) * scale, pixel + 1) - max(area * scale, pixel), 0) / scale
        matrices.append(weights)
    return {"resized_images": _by(matrices[0], images, matrices[1])}


def _lanczos(radius: int) -> Callable[[float], float]:
    return lambda x: float(np.sinc(x) * np.sinc(x / radius)) if x <= radius else 0.0


def _mitchell(x: float) -> float:
    """The cubic of Mitchell and Netravali, Reconstruction filters in computer graphics, 1988, with B = C = 1/3."""
    if x < 1:
        return (7 * x**3 - 12 * x**2 + 16 / 3) / 6
    return (-7 / 3 * x**3 + 12 * x**2 - 20 * x + 32 / 3) / 6 if x < 2 else 0.0


_KERNELS: dict[str, Callable[[float], float]] = {
    **{f"lanczos{radius}": _lanczos(radius) for radius in (1, 3, 5)},
    "gaussian": lambda x: math.exp(-x * x / (2 * 0.5**2)) if x < 1.5 else 0.0,
    "box": lambda x: 1.0 if x < 0.5 else 0.5 if x == 0.5 else 0.0,
    "triangle": lambda x: max(1 - x, 0.0),
    "keyscubic": lambda x: _keys(x, -0.5) if x < 2 else 0.0,
    "mitchellcubic": _mitchell,
}


def _weighed(size: int, made: int, scale: float, translation: float, kernel_type: str, antialias: bool) -> Values:
    weights, inverse = np.zeros((made, size)), _F(1) / _F(scale)
    spread = max(float(inverse), 1.0) if antialias else 1.0
    for number in range(made):
        place = (_F(number) + _F(0.5)) * inverse - inverse * _F(translation)
        if 0 <= place <= size:
            row = np.array([_KERNELS[kernel_type](abs(pixel + 0.5 - float(place)) / spread) for pixel in range(size)])
            weights[number] = row / row.sum() if row.sum() else row
    return weights


@oracle("ScaleAndTranslate")
def scale_and_translate(
    *,
    images: npt.ArrayLike,
    size: npt.ArrayLike,
    scale: npt.ArrayLike,
    translation: npt.ArrayLike,
    kernel_type: str = "lanczos3",
    antialias: bool = True,
) -> dict[str, Values]:
    """Means of pixels by their distances."""
    made = zip(np.shape(images)[1:3], ints(size), np.asarray(scale), np.asarray(translation), strict=True)
    rows, columns = (_weighed(*axis, kernel_type, antialias) for axis in made)
    return {"resized_images": _by(rows, images, columns)}


@oracle("ScaleAndTranslateGrad")
def scale_and_translate_grad(
    *,
    grads: npt.ArrayLike,
    original_image: npt.ArrayLike,
    scale: npt.ArrayLike,
    translation: npt.ArrayLike,
    kernel_type: str = "lanczos3",
    antialias: bool = True,
) -> dict[str, Values]:
    """The same weights the other way."""
    sizes = (np.shape(original_image)[1:3], np.shape(grads)[1:3], np.asarray(scale), np.asarray(translation))
    rows, columns = (_weighed(*axis, kernel_type, antialias) for axis in zip(*sizes, strict=True))
    return {"output": _by(rows.T, grads, columns.T)}


@oracle("ExtractImagePatches")
def extract_image_patches(*, images: npt.ArrayLike, **attributes: Any) -> dict[str, Values]:
    """Window by window."""
    return _patches(wide(images), **attributes)


@oracle("ExtractVolumePatches")
def extract_volume_patches(*, input: npt.ArrayLike, **attributes: Any) -> dict[str, Values]:
    """Window by window."""
    return _patches(wide(input), rates=[1] * 5, **attributes)


def _patches(
    x: Values, *, ksizes: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: str
) -> dict[str, Values]:
    counts, before, within = list[int](), list[tuple[int, int]](), range(1, x.ndim - 1)
    extents = [(size - 1) * rate + 1 for size, rate in zip(ksizes, rates, strict=True)]
    for axis in within:
        size, stride, extent = x.shape[axis], strides[axis], extents[axis]
        count = -(-size // stride) if padding == "SAME" else (size - extent) // stride + 1
        missing = max((count - 1) * stride + extent - size, 0) if padding == "SAME" else 0
        counts.append(count)
        before.append((missing // 2, missing + extent))
    around = np.pad(x, ((0, 0), *before, (0, 0)))
    patches = np.zeros((len(x), *counts, int(np.prod(ksizes)) * x.shape[-1]), x.dtype)
    for place in np.ndindex(*counts):
        starts = [number * strides[axis] for axis, number in zip(within, place, strict=True)]
        window = [slice(a, a + extents[axis], rates[axis]) for axis, a in zip(within, starts, strict=True)]
        patches[(slice(None), *place)] = around[(slice(None), *window)].reshape(len(x), -1)
    return {"patches": patches}


def _mirrored(place: float, size: int) -> float:
    turned = place % (2 * size)
    return min(max(turned if turned < size else 2 * size - turned - 1, 0), size - 1)


def _anew(place: float, size: int) -> float:
    if place < 0:
        place += size * (int(-place / max(size - 1, 1)) + 1)
    elif place > size - 1:
        place -= size * int(place / max(size - 1, 1))
    return min(max(place, 0), size - 1)


_BEYOND: dict[str, Callable[[float, int], float]] = {
    "CONSTANT": lambda place, _: place,
    "REFLECT": lambda place, size: place if 0 <= place <= size - 1 else _mirrored(place, size),
    "WRAP": _anew,
    "NEAREST": lambda place, size: min(max(place, 0), size - 1),
}


@oracle("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def image_projective_transform(
    *,
    images: npt.ArrayLike,
    transforms: npt.ArrayLike,
    output_shape: npt.ArrayLike,
    interpolation: str,
    fill_value: npt.ArrayLike = 0.0,
    fill_mode: str = "CONSTANT",
) -> dict[str, Values]:
    """Pixel by pixel."""
    x, fill, letters = wide(images), float(np.asarray(fill_value)), np.asarray(transforms, _F)
    made = np.zeros((len(x), *ints(output_shape), x.shape[3]), x.dtype)

    def read(image: Values, row: float, column: float) -> Values:
        inside = 0 <= row < image.shape[0] and 0 <= column < image.shape[1]
        return image[int(row), int(column)] if inside else np.full(image.shape[2], fill)

    for number, p, q in product(*map(range, made.shape[:3])):
        a, b, c, d, e, f, g, h = letters[number % len(letters)]
        depth = g * _F(q) + h * _F(p) + _F(1)
        if depth == 0:
            made[number, p, q] = fill
            continue
        across, down = (
            _BEYOND[fill_mode](float(place), size)
            for place, size in (
                ((a * _F(q) + b * _F(p) + c) / depth, x.shape[2]),
                ((d * _F(q) + e * _F(p) + f) / depth, x.shape[1]),
            )
        )
        if interpolation == "NEAREST":
            nearest = [math.copysign(math.floor(abs(place) + 0.5), place) for place in (down, across)]
            made[number, p, q] = read(x[number], *nearest)
            continue
        total = np.zeros(x.shape[3])
        for row, column in product(
            (math.floor(down), math.floor(down) + 1), (math.floor(across), math.floor(across) + 1)
        ):
            total += (1 - abs(row - down)) * (1 - abs(column - across)) * read(x[number], row, column)
        made[number, p, q] = total
    return {"transformed_images": made}


def _pixels(images: npt.ArrayLike, change: Callable[..., Sequence[float]]) -> dict[str, Values]:
    x = wide(images)
    return {"output": np.reshape([change(*map(float, pixel)) for pixel in x.reshape(-1, 3)], x.shape)}


@oracle("RGBToHSV")
def rgb_to_hsv(*, images: npt.ArrayLike) -> dict[str, Values]:
    """Python's own."""
    return _pixels(images, colorsys.rgb_to_hsv)


@oracle("HSVToRGB")
def hsv_to_rgb(*, images: npt.ArrayLike) -> dict[str, Values]:
    """Python's own."""
    return _pixels(images, colorsys.hsv_to_rgb)


@oracle("AdjustHue")
def adjust_hue(*, images: npt.ArrayLike, delta: npt.ArrayLike) -> dict[str, Values]:
    """A hue that goes round."""

    def change(*rgb: float) -> Sequence[float]:
        hue, saturation, value = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb((hue + float(np.asarray(delta))) % 1, saturation, value)

    return _pixels(images, change)


@oracle("AdjustSaturation")
def adjust_saturation(*, images: npt.ArrayLike, scale: npt.ArrayLike) -> dict[str, Values]:
    """A saturation of at most 1."""

    def change(*rgb: float) -> Sequence[float]:
        hue, saturation, value = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb(hue, min(max(saturation * float(np.asarray(scale)), 0), 1), value)

    return _pixels(images, change)


@oracle("AdjustContrastv2")
def adjust_contrast(*, images: npt.ArrayLike, contrast_factor: npt.ArrayLike) -> dict[str, Values]:
    """Around the mean of each channel."""
    x = wide(images)
    mean = x.mean((-3, -2), keepdims=True)
    return {"output": mean + (x - mean) * float(np.asarray(contrast_factor))}
