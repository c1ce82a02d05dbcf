"""Cases of special functions of two operands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.ordinary.case import Case, draw, text

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), (2, 3)), ((1, 4), (3, 1)), ((0,), (1,)), ((2, 1), ())]
DTYPES = ("float32", "float64")
PLACES = [0.3, 0.7, 1.2, 2.3, 4, 7.9, 8.1, 16, 50, 1e6, np.inf, np.nan, 0.0, -1.0, -2.0, -np.inf]
BELOW_0 = [-30.3, -7.2, -1.4, -0.1]


def _grid(op: str, names: tuple[str, str], dtype: str, first: list[float]) -> Iterator[Case]:
    # In float32 TensorFlow's kernel is far off below 0.
    exact = dtype == "float64"
    for places, what, taken in ((PLACES, "any", True), (BELOW_0, "below-0", exact)):
        operands = dict(zip(names, (part.astype(dtype) for part in np.meshgrid(first, places)), strict=True))
        yield Case(op, text(what, dtype), operands, relative=exact, taken=taken)


def _polygamma() -> Iterator[Case]:
    for dtype in DTYPES:
        # Large orders take the kernel out of float32's range.
        orders = [0.0, 1, 2, 3, 5, 10, 12] if dtype == "float64" else [0.0, 1, 2, 3]
        for order in orders:
            for places, what, taken in ((PLACES, "known", True), (BELOW_0, "known-below-0", dtype == "float64")):
                operands = {"a": np.array(order, dtype), "x": np.array(places, dtype)}
                kept = taken or order == 0
                yield Case("Polygamma", text(what, order, dtype), operands, constants=("a",), taken=kept)
        yield from _grid("Polygamma", ("a", "x"), dtype, [*orders, 1.5, -1])
    for first, second in SHAPES:
        a, x = np.full(first, 1, np.float32), np.abs(draw(second, "float32", "polygamma")) + np.float32(0.1)
        for constants in ((), ("a",)):
            what = text(first, second, *constants)
            yield Case("Polygamma", what, {"a": a, "x": x}, constants=constants, unranked=not constants)


def _zeta() -> Iterator[Case]:
    for dtype in DTYPES:
        yield from _grid("Zeta", ("x", "q"), dtype, [2, 3, 7, 1.5, 1, 0.5, *[30.0] * (dtype == "float64")])
    for first, second in SHAPES:
        x, q = (np.abs(draw(shape, "float32", "zeta")) + np.float32(1.1) for shape in (first, second))
        yield Case("Zeta", text(first, second), {"x": x, "q": q}, unranked=True)


def cases() -> Iterator[Case]:
    yield from _polygamma()
    yield from _zeta()
