"""Cases of convolutions and poolings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lstm_lower.dtypes import DTYPES
from lstm_lower.spatial import spatial_positions
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import HALVES, Case, draw, text

# Kernel, strides, padding (or its amounts on both axes).
Window = tuple[tuple[int, ...], tuple[int, ...], str | list[int]]

WINDOWS: list[tuple[tuple[int, ...], Window]] = [
    ((5, 6), ((1, 1), (1, 1), "VALID")),
    ((5, 6), ((3, 2), (1, 1), "SAME")),
    ((5, 6), ((3, 2), (2, 2), "SAME")),
    ((6, 6), ((2, 2), (3, 3), "SAME")),
    ((7, 8), ((3, 3), (2, 2), "VALID")),
    ((4, 5), ((3, 3), (2, 2), [1, 0, 0, 1])),
]
VOLUMES: list[tuple[tuple[int, ...], Window]] = [
    ((3, 5, 4), ((1, 1, 1), (1, 1, 1), "VALID")),
    ((3, 5, 4), ((2, 3, 2), (1, 2, 2), "SAME")),
    ((4, 5, 6), ((2, 2, 3), (2, 1, 3), "VALID")),
]


def _vector(entries: tuple[int, ...], data_format: str) -> list[int]:
    vector = [1] * len(data_format)
    for position, entry in zip(spatial_positions(data_format), entries, strict=True):
        vector[position] = entry
    return vector


def _attributes(window: Window, data_format: str) -> dict[str, Any]:
    _, strides, padding = window
    attributes: dict[str, Any] = {"strides": _vector(strides, data_format)}
    if data_format not in ("NHWC", "NDHWC"):
        attributes["data_format"] = data_format
    if isinstance(padding, str):
        return attributes | {"padding": padding}
    explicit = [0] * (2 * len(data_format))
    first = 2 * spatial_positions(data_format)[0]
    explicit[first : first + len(padding)] = padding
    return attributes | {"padding": "EXPLICIT", "explicit_paddings": explicit}


def _image(x: Array, data_format: str) -> Array:
    return x if data_format.endswith("C") else np.moveaxis(x, -1, 1)


def _convolutions(
    image: tuple[int, ...],
    window: Window,
    data_format: str = "NHWC",
    *,
    dtype: str = "float32",
    groups: int = 1,
    dilations: tuple[int, ...] | None = None,
) -> Iterator[Case]:
    attributes = _attributes(window, data_format)
    if dilations is not None:
        attributes["dilations"] = _vector(dilations, data_format)
    what = text(image, window, data_format, dtype, groups, dilations)
    # TensorFlow's CPU kernels take channels that stand last, and no groups of volumes.
    taken = data_format.endswith("C")
    x = _image(draw((2, *image, 4), dtype), data_format)
    operands = {"input": x, "filter": draw((*window[0], 4 // groups, 6), dtype, "filter")}
    # How many groups there are follows from the channels.
    constants = ("input",) if groups > 1 else ()
    op = "Conv3D" if len(image) == 3 else "Conv2D"
    yield Case(op, what, {**operands}, attributes, constants, ("filter",), taken=taken)
    if len(image) == 2 and groups == 1:
        operands = {"input": x, "filter": draw((*window[0], 4, 2), dtype, "depthwise")}
        # Neither does that of depthwise convolutions take different steps.
        kept = taken and len(set(window[1])) == 1
        yield Case("DepthwiseConv2dNative", what, {**operands}, attributes, steering=("filter",), taken=kept)


def _poolings(
    image: tuple[int, ...], window: Window, data_format: str = "NHWC", dtype: str = "float32"
) -> Iterator[Case]:
    attributes = _attributes(window, data_format)
    ksize = {"ksize": _vector(window[0], data_format)}
    what, taken = text(image, window, data_format, dtype), data_format.endswith("C")
    x = _image(draw((2, *image, 3), dtype), data_format)
    volume = "3D" * (len(image) == 3)
    if data_format == "NHWC" and attributes["padding"] != "EXPLICIT":
        tied = _image(np.round(draw((2, *image, 3), dtype)), data_format)
        for more in ({}, {"include_batch_in_index": True}, {"Targmax": int(DTYPES["int32"])}):
            yield Case("MaxPoolWithArgmax", f"{what}-{text(*more)}", {"input": tied}, {**attributes, **ksize, **more})
    if not (volume and dtype == "float64"):
        yield Case(f"MaxPool{volume}", what, {"input": x}, attributes | ksize, taken=taken)
    if attributes["padding"] == "EXPLICIT":
        return
    if dtype != "float64":
        name = "input" if volume else "value"
        yield Case(f"AvgPool{volume}", what, {name: x}, attributes | ksize, taken=taken)
    if not volume:
        operands = {"input": x, "ksize": np.array(ksize["ksize"], np.int32)}
        operands["strides"] = np.array(attributes.pop("strides"), np.int32)
        constants = ("ksize", "strides")
        yield Case("MaxPoolV2", what, {**operands}, attributes, constants, taken=taken)


def cases() -> Iterator[Case]:
    for image, window in WINDOWS:
        yield from _convolutions(image, window)
        yield from _poolings(image, window)
    for image, window in WINDOWS[1:]:
        yield from _convolutions(image, window, "NCHW")
        yield from _poolings(image, window, "NCHW")
    for image, window in (WINDOWS[1], WINDOWS[4]):
        yield from _convolutions(image, (window[0], (1, 1), window[2]), dilations=(2, 2))
        yield from _convolutions(image, window, groups=2)
    yield from _convolutions((9, 7), ((3, 2), (2, 2), "SAME"), "NCHW", dilations=(2, 3))
    for image, window in VOLUMES:
        for data_format in ("NDHWC", "NCDHW"):
            yield from _convolutions(image, window, data_format)
            yield from _poolings(image, window, data_format)
    image, window = WINDOWS[2]
    for dtype in HALVES:
        yield from _convolutions(image, window, dtype=dtype)
    for dtype in (*HALVES, "float64"):
        yield from _poolings(image, window, dtype=dtype)
