"""Cases of arithmetic on two or more operands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lstm_lower.ops.raw import INTEGERS, NUMBERS, SIGNED
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import FLOATS, Case, draw, grid, numpy_dtype, text

SHAPES = [((2, 0), (1, 1)), ((), (2, 3)), ((1, 4), (3, 1)), ((3, 7), (7,))]
WILD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5]
WHOLE = ("int32", "int64")
DTYPES = {
    **dict.fromkeys(["AddV2", "Sub", "Mul", "Div", "Maximum", "Minimum"], NUMBERS),
    # Kernels of the others TensorFlow lacks on the CPU.
    "Add": (*FLOATS, *SIGNED, "uint8"),
    "TruncateDiv": (*FLOATS, *SIGNED, "uint8", "uint16", "uint32", "uint64"),
    "Pow": (*FLOATS, *SIGNED),
    "SquaredDifference": (*FLOATS, *WHOLE),
    "RealDiv": FLOATS,
    "DivNoNan": FLOATS,
    "Atan2": FLOATS,
}


def _second(op: str, y: Array) -> Array:
    """A divisor of integers is not 0; a power of integers has an exponent of at least 0."""
    if y.dtype.kind in "iu":
        if op in ("Div", "TruncateDiv"):
            return np.asarray(np.where(y == 0, 3, y)).astype(y.dtype)
        if op == "Pow":
            return np.abs(y)
    return y


def _binary() -> Iterator[Case]:
    for op, dtypes in DTYPES.items():
        first_name, second_name = ("y", "x") if op == "Atan2" else ("x", "y")
        for (first, second), dtype in grid(SHAPES, dtypes):
            x, y = draw(first, dtype, op), _second(op, draw(second, dtype, op, "y"))
            if op == "Pow" and dtype in FLOATS:
                x = np.abs(x)
            operands = {first_name: x, second_name: y}
            yield Case(
                op, text(first, second, dtype), {**operands}, relative=True, unranked=dtype in ("float32", "int8")
            )
        x, y = (part.ravel() for part in np.meshgrid(WILD, WILD))
        for dtype in ("float32", "float64"):
            yield Case(op, text("wild", dtype), {first_name: x.astype(dtype), second_name: y.astype(dtype)})
    for dtype in ("int8", "int32", "int64", "uint8"):
        limits = np.iinfo(dtype)
        x = np.array([limits.max, limits.min, limits.max, 100], dtype)
        y = np.array([1, 1, limits.max, 100], dtype)
        for op in ("AddV2", "Sub", "Mul"):
            yield Case(op, text("wraps", dtype), {"x": x, "y": y})
    for dtype in WHOLE:
        x = np.array([3, 3, -3, 1, -1, -1, 0, 2, 7], dtype)
        y = np.array([20, 39, 3, 1000, 1001, 1000, 99, 62, 0], dtype)
        if dtype == "int32":
            y = np.where(np.abs(x) > 1, np.minimum(y, 19), y).astype(dtype)
        yield Case("Pow", text("large", dtype), {"x": x, "y": y})


def _bits() -> Iterator[Case]:
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        for (first, second), dtype in grid(SHAPES[1:], INTEGERS, "int32"):
            x, y = draw(first, dtype, op), draw(second, dtype, op, "y")
            yield Case(op, text(first, second, dtype), {"x": x, "y": y}, since=18, unranked=dtype == "int32")
    for op in ("LeftShift", "RightShift"):
        for dtype in INTEGERS:
            bits, limits = np.iinfo(dtype).bits, np.iinfo(dtype)
            x = np.array([1, 5, limits.max, limits.min, limits.max - 2, limits.min + 9], dtype)
            y = np.array([0, 1, 3, bits // 2, bits - 1, bits, bits + 5], dtype)
            x, y = (part.ravel() for part in np.meshgrid(x, y))
            yield Case(op, dtype, {"x": x, "y": y})
        for first, second in SHAPES:
            x, y = draw(first, "int32", op), np.abs(draw(second, "int32", op, "y"))
            yield Case(op, text(first, second), {"x": x, "y": y}, unranked=True)


def _several() -> Iterator[Case]:
    for op in ("AddN", "AccumulateNV2"):
        # TensorFlow's graphs rewrite the second into the first: it has no kernel.
        taken = op == "AddN"
        for shape, dtype in grid([(), (0, 2), (3, 4)], (*FLOATS, "int32", "int64", "uint8")):
            shapes = {} if taken else {"shape": list(shape)}
            for count in (1, 2, 5):
                parts = [draw(shape, dtype, op, number) for number in range(count)]
                if dtype in FLOATS or taken:
                    yield Case(op, text(shape, dtype, count), {"inputs": parts}, shapes, taken=taken)
    yield Case("AddN", "unranked", {"inputs": [draw((2, 3), "float32", 1), draw((2, 3), "float32", 2)]}, unranked=True)
    for dtype in (*FLOATS, "int32", "int64", "uint8"):
        kind = numpy_dtype(dtype)
        for low, high in ((1, 3), (3, 1)):
            operands = {
                "t": draw((3, 4), dtype),
                "clip_value_min": np.array(low, kind),
                "clip_value_max": np.array(high, kind),
            }
            yield Case("ClipByValue", text(dtype, low, high), {**operands}, unranked=True)
    operands = {
        "t": draw((3, 4), "float32"),
        "clip_value_min": draw((3, 4), "float32", 1),
        "clip_value_max": np.float32(2),
    }
    yield Case("ClipByValue", "tensor", {**operands, "clip_value_max": np.array(2, np.float32)})
    wild = np.array(WILD, np.float32)
    operands = {"t": wild, "clip_value_min": np.array(-1, np.float32), "clip_value_max": np.array(1, np.float32)}
    yield Case("ClipByValue", "wild", {**operands})


def cases() -> Iterator[Case]:
    yield from _binary()
    yield from _bits()
    yield from _several()
