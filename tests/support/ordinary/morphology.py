"""Cases of greyscale dilation and of its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from lstm_lower.ops.raw import ORDERED
from tests.support.ordinary.case import FLOATS, Case, draw, mixed_grid, text

# Image, filter, strides, rates; in the third, windows of padding alone.
FORMS = [
    ((5, 6), (3, 3), (1, 1), (1, 1)),
    ((7, 8), (2, 3), (3, 2), (1, 2)),
    ((1, 3), (2, 2), (1, 2), (4, 1)),
    ((4, 5), (1, 2), (3, 4), (1, 1)),
]


def cases() -> Iterator[Case]:
    for (form, dtype), padding in product(mixed_grid(FORMS, ORDERED), ("SAME", "VALID")):
        size, kernel, strides, rates = form
        if padding == "VALID" and (kernel[0] - 1) * rates[0] >= size[0]:
            continue
        yield from _of(
            draw((2, *size, 3), dtype, "image"), draw((*kernel, 3), dtype, "filter"), strides, rates, padding
        )
    flat = np.zeros((2, 5, 6, 3), np.float32)
    yield from _of(flat, flat[0, :2, :2], (1, 1), (1, 1), "SAME", "ties")
    yield from _of(flat[:0], flat[0, :2, :2], (1, 1), (1, 1), "SAME", "no images")
    flat[0, 1:3], flat[0, 4] = np.nan, -np.inf
    yield from _of(flat, flat[1, :2, :2], (2, 1), (1, 1), "VALID", "odd")


def _of(
    x: np.ndarray,
    kernel: np.ndarray,
    strides: tuple[int, int],
    rates: tuple[int, int],
    padding: str,
    name: str = "",
) -> Iterator[Case]:
    attributes = {"strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
    operands = {"input": x, "filter": kernel}
    what = text(x.shape, kernel.shape, x.dtype, *attributes.values(), name)
    yield Case("Dilation2D", what, {**operands}, attributes)
    if x.dtype.name not in FLOATS:
        return
    extents = [(kernel.shape[axis] - 1) * rates[axis] + 1 for axis in (0, 1)]
    counts = [
        -(-size // stride) if padding == "SAME" else (size - extent) // stride + 1
        for size, stride, extent in zip(x.shape[1:3], strides, extents, strict=True)
    ]
    operands["out_backprop"] = draw((len(x), *counts, 3), x.dtype.name, "gradient")
    for operand in ("Input", "Filter"):
        yield Case(f"Dilation2DBackprop{operand}", what, {**operands}, attributes)
