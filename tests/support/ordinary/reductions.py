"""Cases of reductions, and of what is accumulated along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from lstm_lower.dtypes import DTYPES
from lstm_lower.ops.raw import EVERYTHING, NUMBERS
from tests.support.ordinary.case import INDEX, Case, draw, grid, text

# Shapes with the axes to reduce.
AXES: list[tuple[tuple[int, ...], Any]] = [
    ((), []),
    ((5,), 0),
    ((2, 3), []),
    ((2, 3), -1),
    ((2, 0), [-1]),
    ((0, 3), [0]),
    ((0, 3), [1]),
    ((2, 3, 4), [0, -1]),
    ((2, 3, 4), [2, 1, 0]),
    ((2, 3, 4), [1]),
]


def _reductions() -> Iterator[Case]:
    for op in ("Sum", "Mean", "Prod", "Max", "Min", "All", "Any"):
        truths = op in ("All", "Any")
        # Reduced axes that come at run time are an operand from opset 18 on, of sums from 13 on.
        since = 18 if op in ("Prod", "Max", "Min") else 13
        for (shape, axes), dtype in grid(AXES, ["bool"] if truths else NUMBERS, "bool" if truths else "float32"):
            for keep in (False, True) if dtype in ("bool", "float32") else (False,):
                operands = {"input": draw(shape, dtype, op), "axis": np.array(axes, np.int32)}
                yield Case(
                    op,
                    text(shape, axes, dtype, keep),
                    {**operands},
                    {"keep_dims": keep},
                    steering=("axis",),
                    since=13 if axes == [] else since,
                    unranked=shape == (2, 3, 4),
                )
        x = draw((3, 2), "bool" if truths else "float32", op)
        yield Case(op, "int64", {"input": x, "axis": np.array([1])}, steering=("axis",), since=since)
        yield Case(op, "constant-axis", {"input": x, "axis": np.array([-1])}, constants=("axis",), unranked=True)
        yield Case(
            op,
            "constant-axes",
            {"input": draw((2, 3, 2, 2), x.dtype.name, op), "axis": np.array([0, 2])},
            constants=("axis",),
        )
    for op in ("Mean", "Max", "Min", "Sum", "Prod"):
        wild = np.array([[1, np.nan, 3], [np.nan, 1, 2], [1, 2, np.nan], [np.inf, 1, 2], [1, -np.inf, 0]], np.float32)
        for axis in (0, 1):
            yield Case(op, f"wild-{axis}", {"input": wild, "axis": np.array(axis)}, constants=("axis",))
        nothing = np.zeros((0, 2), np.int32)
        yield Case(op, "of-no-integers", {"input": nothing, "axis": np.array(0)}, constants=("axis",))
    for dtype, op in product(("int64", "uint64"), ("Max", "Min")):
        limits = np.iinfo(dtype)
        x = np.array([[limits.min, 5, limits.max], [limits.max, limits.max - 1, 7]], dtype)
        yield Case(op, text("limits", dtype), {"input": x, "axis": np.array(1)}, constants=("axis",))
    for dtype in ("int32", "int64"):
        yield Case(
            "Mean",
            f"down-{dtype}",
            {"input": np.array([1, 2, -4, -4], dtype), "axis": np.array(0)},
            constants=("axis",),
        )


def _positions() -> Iterator[Case]:
    for op in ("ArgMax", "ArgMin"):
        for (shape, axis), dtype in grid(
            [((5,), 0), ((2, 3), -2), ((0, 3), 1), ((2, 3, 4), 2), ((2, 3, 4), 1)], EVERYTHING
        ):
            operands = {"input": draw(shape, dtype, op), "dimension": np.array(axis, np.int32)}
            yield Case(op, text(shape, axis, dtype), {**operands}, constants=("dimension",), unranked=axis == 2)
        for name in ("int16", "uint16", *INDEX) if op == "ArgMax" else INDEX:
            operands = {"input": draw((3, 4), "float32", op), "dimension": np.array(1)}
            yield Case(op, text("to", name), {**operands}, {"output_type": int(DTYPES[name])}, constants=("dimension",))
        tied = np.array([[2, 1, 2, 1], [0, 0, 0, 0]], np.float32)
        nan = np.nan
        wild = np.array([[1, nan, 3], [nan, 1, 2], [1, 2, nan], [nan, nan, nan], [np.inf, 1, -np.inf]], np.float32)
        for what, x in (("tied", tied), ("wild", wild)):
            yield Case(op, what, {"input": x, "dimension": np.array(1)}, constants=("dimension",))


def _cumulative() -> Iterator[Case]:
    flags = [{"exclusive": e, "reverse": r} for e, r in product((False, True), repeat=2)]
    for op in ("Cumsum", "Cumprod"):
        place = {"steering": ("axis",)} if op == "Cumsum" else {"constants": ("axis",)}
        shapes = [((5,), 0), ((0, 2), 1), ((2, 3, 4), -1), ((2, 3, 4), 1)]
        for (shape, axis), dtype in grid(shapes, NUMBERS):
            for attributes in flags if dtype == "float32" else flags[:1]:
                operands = {"x": draw(shape, dtype, op), "axis": np.array(axis, np.int32)}
                what = text(shape, axis, dtype, *attributes.values())
                yield Case(op, what, {**operands}, attributes, **place)  # type: ignore[arg-type]
    yield Case(
        "Cumsum", "unranked", {"x": draw((2, 3), "float32"), "axis": np.array(1)}, steering=("axis",), unranked=True
    )
    yield Case("Cumsum", "of-nothing", {"x": np.zeros((2, 0), np.float32), "axis": np.array(1)}, steering=("axis",))


def cases() -> Iterator[Case]:
    yield from _reductions()
    yield from _positions()
    yield from _cumulative()
