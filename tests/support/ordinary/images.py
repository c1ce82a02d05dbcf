"""Cases of the ops that sample images anew, cut patches out of them and change their colours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from lstm_lower.ops.raw import NUMBERS as REAL
from lstm_lower.passes.rules.images import RADII
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import FLOATS, Case, draw, grid, text

FILL_MODES = ("CONSTANT", "REFLECT", "WRAP", "NEAREST")

SIZES = [((3, 4), (6, 8)), ((3, 4), (1, 1)), ((7, 5), (3, 4)), ((1, 1), (2, 3)), ((4, 6), (7, 5))]
WHOLE = ("uint8", "int32")


def cases() -> Iterator[Case]:
    yield from _cubic()
    yield from _weighed()
    yield from _patches()
    yield from _projected()
    yield from _colours()


def _cubic() -> Iterator[Case]:
    for (image, size), dtype in grid(SIZES, ("float64", *WHOLE)):
        operands = {"images": draw((2, *image, 3), dtype, "cubic"), "size": np.array(size, np.int32)}
        yield Case("ResizeArea", text(image, size, dtype), {**operands}, steering=("size",))
        for corners, centres in [(False, False), (True, False), (False, True)]:
            attributes = {"align_corners": corners, "half_pixel_centers": centres}
            what = text(image, size, dtype, corners, centres)
            yield Case("ResizeBicubic", what, {**operands}, attributes, steering=("size",))
            if dtype == "float32":
                grads = {"grads": draw((2, *size, 3), "float32", "grads"), "original_image": operands["images"]}
                yield Case("ResizeBicubicGrad", what, {**grads}, attributes)


def _weighed() -> Iterator[Case]:
    places = np.array([[0.6, 1.7], [0.3, -1.2]], np.float32)
    for kernel, antialias in product(RADII, (False, True)):
        attributes, (scale, translation) = {"kernel_type": kernel, "antialias": antialias}, places
        for (image, size), dtype in grid([((7, 5), (3, 9)), ((4, 6), (3, 7))], WHOLE if kernel == "triangle" else ()):
            more = {"scale": scale, "translation": translation}
            what, images = text(image, size, dtype, kernel, antialias), draw((2, *image, 3), dtype, kernel)
            operands = {"images": images, "size": np.array(size, np.int32), **more}
            yield Case("ScaleAndTranslate", what, {**operands}, attributes, steering=("size",))
            if dtype == "float32":
                operands = {"grads": draw((2, *size, 3), dtype, "grads"), "original_image": images, **more}
                yield Case("ScaleAndTranslateGrad", what, {**operands}, attributes)


def _patches() -> Iterator[Case]:
    forms = [((5, 6), (3, 3), (1, 1), (1, 1)), ((7, 8), (2, 3), (3, 2), (1, 2)), ((4, 9), (1, 2), (3, 4), (1, 1))]
    for (size, kernel, stride, rate), dtype in grid(forms, (name for name in REAL if name != "bfloat16")):
        for padding in ("SAME", "VALID"):
            sizes = dict(zip(("ksizes", "strides", "rates"), ([1, *x, 1] for x in (kernel, stride, rate)), strict=True))
            operands = {"images": draw((2, *size, 3), dtype)}
            what = text(size, kernel, stride, rate, dtype, padding)
            yield Case("ExtractImagePatches", what, {**operands}, {**sizes, "padding": padding})
    volumes = [((3, 5, 4), (1, 1, 1), (1, 2, 3)), ((4, 5, 6), (2, 3, 2), (3, 2, 1)), ((2, 3, 9), (2, 1, 3), (1, 1, 4))]
    for (size, kernel, stride), dtype in grid(volumes, ("float64", "int32", "uint8")):
        for padding in ("SAME", "VALID"):
            sizes = {"ksizes": [1, *kernel, 1], "strides": [1, *stride, 1], "padding": padding}
            what = text(size, kernel, stride, dtype, padding)
            yield Case("ExtractVolumePatches", what, {"input": draw((2, *size, 3), dtype)}, sizes)


def _projected() -> Iterator[Case]:
    turned = [0.9, 0.2, -0.3, -0.25, 1.1, 0.4, 0.01, -0.02]
    far, gone = [2.3, 0.1, -7.2, 0.1, 3.1, -4.4, 0, 0], [1, 0, 0, 0, 1, 0, -0.5, 0]
    for interpolation, mode in product(("NEAREST", "BILINEAR"), FILL_MODES):
        dtypes = ("float16", "float64", "uint8", "int32") if interpolation == "NEAREST" else ()
        for ((size, made), dtype), rows in product(
            grid([((1, 1), (2, 3)), ((4, 5), (6, 4))], dtypes), ([turned], [far, gone])
        ):
            operands = {
                "images": draw((2, *size, 3), dtype),
                "transforms": np.array(rows, np.float32),
                "output_shape": np.array(made, np.int32),
            }
            attributes = {"interpolation": interpolation, "fill_mode": mode}
            what = text(size, made, dtype, interpolation, mode, len(rows))
            yield Case("ImageProjectiveTransformV2", what, {**operands}, attributes, steering=("output_shape",))
            operands |= {"fill_value": np.array(3, np.float32)}
            yield Case("ImageProjectiveTransformV3", what, {**operands}, attributes, steering=("output_shape",))


def _shades(shape: tuple[int, ...], dtype: str) -> Array:
    """Colours between 0 and 1, of which some are grey, some black, and some have two equal channels."""
    pixels = np.random.default_rng(3).random((*shape, 3))
    flat = pixels.reshape(-1, 3)
    flat[1::5, 1:] = flat[1::5, :1]
    flat[2::5, 2:] = flat[2::5, :1]
    flat[3::7] = 0
    return np.asarray(pixels).astype(dtype)


def _colours() -> Iterator[Case]:
    for shape, dtype in grid([(5,), (0, 4), (2, 3, 4)], (name for name in FLOATS if name != "bfloat16")):
        for op in ("RGBToHSV", "HSVToRGB"):
            yield Case(op, text(shape, dtype), {"images": _shades(shape, dtype)})
    for dtype, number in product(("float16", "float32"), (-0.4, 0.0, 0.3, 1.0)):
        images, factor = _shades((2, 3, 4), dtype), np.array(number, np.float32)
        what, taken = text(dtype, number), dtype == "float32"
        for op, name in (
            ("AdjustHue", "delta"),
            ("AdjustSaturation", "scale"),
            ("AdjustContrastv2", "contrast_factor"),
        ):
            yield Case(op, what, {"images": images, name: factor + (name == "scale")}, taken=taken)
