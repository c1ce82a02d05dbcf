"""Cases of the functions of one operand, and of what hands its operand on."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lstm_lower.dtypes import DTYPES
from lstm_lower.ops.raw import EVERYTHING, INTEGERS, NUMBERS, SIGNED
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import FLOATS, Case, draw, text

SHAPES = [(), (0, 3), (2, 3, 4)]


def _inverse_of_erf(y: float) -> float:
    """By Newton's method."""
    x = y * math.sqrt(math.pi) / 2
    for _ in range(60):
        x -= (math.erf(x) - y) * math.sqrt(math.pi) / 2 * math.exp(x * x)
    return x


WILD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5]

# Op -> the operand, and what of float64 and halves TensorFlow's CPU kernels do not take.
ANYWHERE = ["Exp", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Sigmoid", "Tanh", "Floor", "Ceil"]
ERRORS = ["Erf", "Erfc"]
ACTIVATIONS = ["Elu", "Selu", "Softplus", "Softsign"]
POSITIVE = ["Sqrt", "Rsqrt", "Log"]
WITHIN_ONE = ["Asin", "Acos", "Atanh", "Erfinv"]

# Those whose results, where they are small, must be right for their size.
RELATIVE = {"Exp", "Sigmoid", "Tanh", "Softplus", "Sinh", "Asinh", "Atan", "Asin", "Atanh", "Softsign"}


def _domain(op: str, x: Array) -> Array:
    """Operands for which a function has a value."""
    if op in POSITIVE:
        return np.abs(x) + np.asarray(0.1, x.dtype)
    if op in WITHIN_ONE:
        return (x / np.asarray(2 + np.abs(x), x.dtype)).astype(x.dtype)
    if op == "Ndtri":
        return np.asarray(0.5 + x / (4 + 2 * np.abs(x)), x.dtype)
    return np.abs(x) + np.asarray(1, x.dtype) if op == "Acosh" else x


def _float_dtypes(op: str) -> list[str]:
    halves = ["float16", "bfloat16"]
    missing = {"Lgamma": halves[1:], "Digamma": halves[1:], "Rint": halves, "Erfinv": halves, "Ndtri": halves}
    return [dtype for dtype in FLOATS if dtype not in missing.get(op, [])]


def _functions() -> Iterator[Case]:
    plain = [*ANYWHERE, *ERRORS, *POSITIVE, *WITHIN_ONE, "Acosh", "Reciprocal", "Rint", "Lgamma", "Digamma", "Ndtri"]
    for op in [*plain, *ACTIVATIONS]:
        name, relative = "features" if op in ACTIVATIONS else "x", op in RELATIVE
        for dtype in _float_dtypes(op):
            x = np.asarray(_domain(op, draw((2, 3, 4), dtype, op)))
            yield Case(op, text("x", dtype), {name: x}, relative=relative, unranked=dtype == "float32")
        for shape in SHAPES[:2]:
            x = np.asarray(_domain(op, draw(shape, "float32", op)))
            yield Case(op, text(shape), {name: x}, relative=relative)
        wild = [x for x in WILD if op not in ("Elu", "Softsign") or np.isfinite(x)]
        for dtype in ("float32", "float64"):
            if dtype in _float_dtypes(op):
                # Of infinite numbers TensorFlow's Erf makes NaN.
                exact = {"y": np.array([*map(math.erf, wild)])} if (op, dtype) == ("Erf", "float64") else None
                yield Case(op, text("wild", dtype), {name: np.array(wild, dtype)}, relative=relative, expected=exact)
    for op in sorted(RELATIVE):
        name = "features" if op in ACTIVATIONS else "x"
        small = np.array([sign * 10.0**-power for power in range(1, 30, 3) for sign in (1, -1)])
        for dtype in ("float32", "float64"):
            yield Case(op, text("small", dtype), {name: small.astype(dtype)}, relative=True)
    for op in ("Sigmoid", "Softplus", "Exp", "Tanh", "Elu", "Selu"):
        name = "features" if op in ACTIVATIONS else "x"
        far = np.array([-80, -40, -30, -20, -18.5, -17, -9, 9, 18, 40, 80])
        for dtype in ("float32", "float64"):
            yield Case(op, text("far", dtype), {name: far.astype(dtype)}, relative=op in RELATIVE)
    for op in ("Sinh", "Cosh", "Asinh", "Acosh", "Atan"):
        yield Case(op, "huge", {"x": np.array([710, 1e10, 1e200, 1e307])}, relative=True)
    for dtype in ("float32", "float64"):
        tails = np.array([-6, -2, -0.5, -1e-9, 1e-9, 0.49, 0.51, 2.5, 4.2, 7, 9])
        yield Case("Erfc", text("tails", dtype), {"x": tails.astype(dtype)}, relative=True)
        small = np.array([1e-30, 1e-9, 0.02, 0.3, 0.49, 0.51, 0.7, 0.99]).astype(dtype)
        # Of small numbers TensorFlow's kernel makes zeros.
        exact = {"y": np.array([_inverse_of_erf(float(x)) for x in small])}
        yield Case("Erfinv", text("small", dtype), {"x": small}, relative=True, expected=exact)
        yield Case("Ndtri", text("tails", dtype), {"x": small}, relative=True)
    for op in ("Lgamma", "Digamma"):
        x = np.array([-100.3, -30.5, -7.25, -1.5, -1e-5, 1e-10, 0.3, 0.7, 1.2, 2.3, 4, 7.9, 8.1, 16, 50, 1e6])
        for dtype in ("float32", "float64"):
            yield Case(op, text("far", dtype), {"x": x.astype(dtype)})


def _arithmetic() -> Iterator[Case]:
    dtypes = {
        "Square": NUMBERS,
        "Invert": INTEGERS,
        "Relu": NUMBERS,
        "Relu6": NUMBERS,
        "Round": (*FLOATS, "int32", "int64"),
    }
    for op in ("Abs", "Neg", "Sign", "Square", "Round", "Invert", "Relu", "Relu6"):
        name = "features" if op.startswith("Relu") else "x"
        for dtype in dtypes.get(op, (*FLOATS, *SIGNED)):
            x = draw((2, 3, 4), dtype, op, scale=6)
            if dtype not in FLOATS:
                limits = np.iinfo(dtype)
                x[0, 0, :2] = limits.max, limits.min
            # Of whole numbers TensorFlow's Round makes zeros.
            same = {"y": x} if op == "Round" and dtype not in FLOATS else None
            unranked = dtype in ("float32", "int16")
            yield Case(op, text("x", dtype), {name: x}, relative=True, unranked=unranked, expected=same)
        common = "int32" if op == "Invert" else "float32"
        for shape in SHAPES[:2]:
            yield Case(op, text(shape), {name: draw(shape, common, op)})
        if op != "Invert":
            yield Case(op, "wild", {name: np.array(WILD, np.float32)})
    for dtype in FLOATS:
        for alpha in (0.2, 0.01, 1.5):
            x = draw((3, 4), dtype, alpha)
            yield Case("LeakyRelu", text(dtype, alpha), {"features": x}, {"alpha": alpha}, unranked=True)
    yield Case("LeakyRelu", "wild", {"features": np.array(WILD, np.float32)})


def _casts() -> Iterator[Case]:
    for source in EVERYTHING:
        for target in EVERYTHING:
            x = draw((5,), source, "cast")
            if target.startswith("u") and source in (*FLOATS, *SIGNED):
                x = np.abs(x)
            yield Case("Cast", text(source, target), {"x": x}, {"DstT": int(DTYPES[target])}, unranked=source == target)
    wraps = np.array([300, -1, 2**31 - 1, -(2**31), 40000], np.int32)
    for target in ("uint8", "int8", "int16", "uint16", "uint32", "int64"):
        yield Case("Cast", text("wraps", target), {"x": wraps}, {"DstT": int(DTYPES[target])})
    numbers = np.array([1.9, -1.9, 0.5, -0.5, 100.99, -0.0], np.float32)
    for target in ("int8", "int32", "int64", "bool"):
        yield Case("Cast", text("drops", target), {"x": numbers}, {"DstT": int(DTYPES[target])})
    large = np.array([70000, 1e30, np.inf, -np.inf, np.nan, 1e-30, 2049])
    for target in ("float16", "bfloat16", "float32", "bool"):
        yield Case("Cast", text("large", target), {"x": large}, {"DstT": int(DTYPES[target])})
    yield Case("Cast", "empty", {"x": np.zeros((0, 2), np.float32)}, {"DstT": int(DTYPES["int32"])})
    yield Case("Cast", "truncate-whole", {"x": numbers}, {"DstT": int(DTYPES["int32"]), "Truncate": True})


def _passing() -> Iterator[Case]:
    for dtype in EVERYTHING:
        yield Case("Identity", dtype, {"input": draw((2, 3), dtype)}, unranked=True)
    for op in ("StopGradient", "DeepCopy"):
        for dtype in ("float32", "int32", "bool"):
            yield Case(op, dtype, {"x" if op == "DeepCopy" else "input": draw((2, 3), dtype)}, unranked=True)
    for op in ("RefIdentity", "Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3"):
        yield Case(op, "x", {"input": draw((2, 3), "float32")}, taken=False, unranked=True)
    for op in ("CheckNumerics", "CheckNumericsV2"):
        yield Case(op, "x", {"tensor": draw((2, 3), "float32")}, {"message": "no"}, unranked=True)
    mixed = [draw((2,), "float32"), draw((1, 3), "int32"), draw((), "bool"), draw((2,), "float16")]
    yield Case("IdentityN", "mixed", {"input": mixed}, unranked=True)
    yield Case("IdentityN", "one", {"input": [draw((0, 3), "float32")]})


def cases() -> Iterator[Case]:
    yield from _functions()
    yield from _arithmetic()
    yield from _casts()
    yield from _passing()
