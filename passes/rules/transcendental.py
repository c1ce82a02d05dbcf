"""Functions that onnxruntime has in float32 only, as formulas in float64 on those that it has in both.

None of them cancels: small operands give results that are right in relative terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.elementary import log1p_of as log_of_one_and

Formula = Callable[[Expr], Expr]


__all__ = [
    "Formula", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "log_of_one_and", "sinh", "tan",
]  # fmt: skip


def _of(op: type[std.Standard], x: Expr) -> Expr:
    return x.builder.op(op, x)


def tan(x: Expr) -> Expr:
    """The sine over the cosine."""
    return _of(std.Sin, x) / _of(std.Cos, x)


def atan(x: Expr) -> Expr:
    """The angle in float32, and what is missing to the exact one.

    With y for the first, that is the angle whose tangent is (x - tan y) / (1 + x tan y), so small that the tangent is
    as good. Above 1 it is the angle of 1 / x that is taken from a right angle.
    """
    b = x.builder
    steep = _of(std.Abs, x) > 1
    flat = b.where(steep, 1 / x, x)
    near = _of(std.Atan, flat.cast(ir.DataType.FLOAT)).cast(ir.DataType.DOUBLE)
    sine, cosine = _of(std.Sin, near), _of(std.Cos, near)
    angle = near + (flat * cosine - sine) / (cosine + flat * sine)
    return b.where(steep, _of(std.Sign, x) * (math.pi / 2) - angle, angle)


def asin(x: Expr) -> Expr:
    """The angle whose tangent is x / sqrt((1 - x) (1 + x))."""
    return atan(x / _of(std.Sqrt, (1 - x) * (1 + x)))


def acos(x: Expr) -> Expr:
    """Twice the angle whose tangent is sqrt((1 - x) / (1 + x))."""
    return 2 * atan(_of(std.Sqrt, (1 - x) / (1 + x)))


def cosh(x: Expr) -> Expr:
    """(exp(x) + exp(-x)) / 2 of exp(x / 2), which overflows no sooner than the result."""
    half = _of(std.Exp, x * 0.5)
    return half * 0.5 * half + 0.5 / half / half


def sinh(x: Expr) -> Expr:
    """The product of tanh(x / 2) and 1 + cosh(x)."""
    return _of(std.Tanh, x * 0.5) * (1 + cosh(x))


def asinh(x: Expr) -> Expr:
    """log(a + sqrt(a a + 1)) = log(1 + a + a a / (1 + sqrt(a a + 1))) of a = |x|, with x's sign."""
    b = x.builder
    size = _of(std.Abs, x)
    # By the larger of a and 1 divided, the square does not overflow.
    larger = size.maximum(1)
    root = _of(std.Sqrt, (size / larger) * (size / larger) + (1 / larger) * (1 / larger)) * larger
    result = _of(std.Sign, x) * log_of_one_and(size + size * (size / (1 + root)))
    return b.where(size < math.inf, result, x)


def acosh(x: Expr) -> Expr:
    """log(x + sqrt(x x - 1)) = log(1 + t + sqrt(t) sqrt(t + 2)) of t = x - 1."""
    rest = x - 1
    return log_of_one_and(rest + _of(std.Sqrt, rest) * _of(std.Sqrt, rest + 2))


def atanh(x: Expr) -> Expr:
    """log((1 + a) / (1 - a)) / 2 = log(1 + 2 a / (1 - a)) / 2 of a = |x|, with x's sign."""
    size = _of(std.Abs, x)
    return _of(std.Sign, x) * (0.5 * log_of_one_and(2 * size / (1 - size)))
