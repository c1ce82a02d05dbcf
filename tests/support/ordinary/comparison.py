"""Cases of comparisons, tests and operations on truth values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lstm_lower.ops.raw import EVERYTHING, NUMBERS
from tests.support.ordinary.case import FLOATS, Case, draw, grid, numpy_dtype, text

SHAPES = [((2, 0), (1, 1)), ((), (2, 3)), ((1, 4), (3, 1)), ((3, 7), (7,))]
WILD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5]


def cases() -> Iterator[Case]:
    equality = ("Equal", "NotEqual")
    for op in (*equality, "Less", "LessEqual", "Greater", "GreaterEqual"):
        for (first, second), dtype in grid(SHAPES, EVERYTHING if op in equality else NUMBERS):
            x, y = draw(first, dtype, op), draw(second, dtype, op, "y")
            if dtype not in ("bool", "bfloat16"):
                x, y = (np.asarray(np.round(part)) for part in (x, y))
            yield Case(op, text(first, second, dtype), {"x": x, "y": y}, unranked=dtype == "float32")
        x, y = (part.ravel().astype(np.float32) for part in np.meshgrid(WILD, WILD))
        yield Case(op, "wild", {"x": x, "y": y})
    for op in equality:
        operands = {"x": draw((2,), "float32"), "y": draw((3,), "float32")}
        yield Case(op, "no-broadcast", {**operands}, {"incompatible_shape_error": False}, constants=("x", "y"))
        yield Case(op, "may-broadcast", {"x": operands["x"], "y": operands["x"]}, {"incompatible_shape_error": False})
    for op in ("LogicalAnd", "LogicalOr"):
        for first, second in SHAPES:
            operands = {"x": draw(first, "bool", op), "y": draw(second, "bool", op, "y")}
            yield Case(op, text(first, second), {**operands}, unranked=True)
    for shape in [(), (0, 3), (2, 3)]:
        yield Case("LogicalNot", text(shape), {"x": draw(shape, "bool")}, unranked=True)
    for op in ("IsNan", "IsInf", "IsFinite"):
        for dtype in FLOATS:
            yield Case(op, dtype, {"x": np.array(WILD).astype(numpy_dtype(dtype))}, unranked=True)
        yield Case(op, "empty", {"x": np.zeros((0, 2), np.float32)})
    for dtype in ("float32", "float64"):
        x = np.array([1, 1, 1, np.inf, np.nan], dtype)
        y = np.array([1.1, 1.3, 1, np.inf, np.nan], dtype)
        yield Case("ApproximateEqual", dtype, {"x": x, "y": y}, {"tolerance": 0.25})
        yield Case("ApproximateEqual", f"{dtype}-default", {"x": x, "y": x + np.array(2e-5, dtype)})
