"""Lowering of arithmetic on two or more operands."""

from __future__ import annotations

import functools
import math
import operator

import onnx_ir as ir

from lstm_lower.dtypes import is_complex
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.arithmetic import (
    AccumulateNV2,
    Add,
    AddN,
    AddV2,
    Atan2,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    ClipByValue,
    Div,
    DivNoNan,
    LeftShift,
    Maximum,
    Minimum,
    Mul,
    Pow,
    RealDiv,
    RightShift,
    SquaredDifference,
    Sub,
    TruncateDiv,
)
from lstm_lower.passes.formulas.complex_numbers import conjugate
from lstm_lower.passes.rules.ordinary.tables import lowers_by, standard, widened
from lstm_lower.passes.rules.ordinary.transcendental import atan
from lstm_lower.passes.rules.registry import Node, lowers

_INT64, _UINT64 = ir.DataType.INT64, ir.DataType.UINT64


def truncated(x: Expr) -> Expr:
    """A number without what is behind its point."""
    b = x.builder
    return b.where(x < 0, b.op(std.Ceil, x), x.floor())


def _truncate_div(x: Expr, y: Expr) -> Expr:
    return truncated(x / y) if x.dtype.is_floating_point() else x / y


def _div_no_nan(x: Expr, y: Expr) -> Expr:
    return x.builder.where(y.equals(0), 0, x / y)


def _squared_difference(x: Expr, y: Expr) -> Expr:
    """Of complex numbers the square of the distance."""
    difference = x - y
    return difference * (conjugate(difference) if is_complex(x.dtype) else difference)


def _pow(x: Expr, y: Expr) -> Expr:
    """A Pow; of integers, which onnxruntime rounds to 53 bits, a product of squares.

    From 64 on only powers of -1, 0 and 1 are representable, and it matters only whether the exponent is even.
    """
    b = x.builder
    if x.dtype.is_floating_point():
        return x**y
    rest = b.where(y < 64, y, 62 + y % 2)
    factors = []
    for bit in range(6):
        odd = rest % 2 > 0
        factors.append(b.where(odd, x, 1))
        if bit < 5:
            x, rest = x * x, rest / 2
    return functools.reduce(operator.mul, factors)


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle from the nearest axis, whose tangent is at most 1, taken from or added to that of the axis."""
    b = x.builder
    tall, wide = y.abs(), x.abs()
    # Also of two zeros, and of two infinities, which have no quotient.
    equal = tall.equals(wide)
    corner = b.where(tall > 0, tall.like(1), 0)
    tangent = b.where(equal, corner, tall.minimum(wide) / tall.maximum(wide))
    angle = atan(tangent) if x.dtype == ir.DataType.DOUBLE else b.op(std.Atan, tangent)
    angle = b.where(tall > wide, math.pi / 2 - angle, angle)
    angle = b.where(_negative(x), math.pi - angle, angle)
    return b.where(_negative(y), -angle, angle)


def _negative(x: Expr) -> Expr:
    """Whether a number has a minus sign: even a zero may."""
    return (x < 0) | (1 / x < 0)


def _left_shift(x: Expr, y: Expr) -> Expr:
    """A product, which wraps."""
    return x.cast(_INT64) * _power_of_two(y.cast(_INT64))


def _right_shift(x: Expr, y: Expr) -> Expr:
    """A quotient, rounded down; in two steps, since 2^63 is no int64."""
    half = y.cast(_INT64) / 2
    return _floor_div(_floor_div(x.cast(_INT64), _power_of_two(half)), _power_of_two(y.cast(_INT64) - half))


def _floor_div(x: Expr, y: Expr) -> Expr:
    return (x - x % y) / y


def _power_of_two(exponent: Expr) -> Expr:
    table = exponent.builder.ints(*(2**power for power in range(63)), -(2**63))
    return table.take(exponent)


lowers_by(
    {
        Add: operator.add,
        AddV2: operator.add,
        Sub: operator.sub,
        Mul: operator.mul,
        RealDiv: operator.truediv,
        Div: operator.truediv,
        TruncateDiv: _truncate_div,
        DivNoNan: _div_no_nan,
        Pow: _pow,
        Maximum: standard(std.Max),
        Minimum: standard(std.Min),
        SquaredDifference: _squared_difference,
        Atan2: atan2,
        ClipByValue: lambda t, low, high: t.minimum(high).maximum(low),
    }
)


@lowers(AddN, AccumulateNV2, repeatable=True)
def add_n(n: Node) -> dict[str, Expr]:
    """One after another."""
    return {"sum": functools.reduce(operator.add, [widened(part) for part in n.variadic("inputs")])}


@lowers(BitwiseAnd, BitwiseOr, BitwiseXor, repeatable=True)
def bitwise(n: Node) -> dict[str, Expr]:
    """ONNX's own, of opset 18."""
    if n.builder.opset < 18:
        raise n.unsupported("the model", "opset 18 or newer, where ONNX has it", f"opset {n.builder.opset}")
    operators = {BitwiseAnd: std.BitwiseAnd, BitwiseOr: std.BitwiseOr, BitwiseXor: std.BitwiseXor}
    return {"z": n.builder.op(operators[n.op], n.x, n.y)}


@lowers(LeftShift, RightShift, repeatable=True)
def shift(n: Node) -> dict[str, Expr]:
    """By powers of two, since ONNX shifts unsigned numbers only."""
    x, y, bits = n.x, n.y, n.x.dtype.bitwidth
    y = (y if y.dtype == _UINT64 else y.cast(_INT64).maximum(0)).minimum(bits - 1)
    if n.op is LeftShift:
        return {"z": _left_shift(x, y)}
    if x.dtype == _UINT64:
        return {"z": n.builder.op(std.BitShift, x, y, direction="RIGHT")}
    return {"z": _right_shift(x, y)}
