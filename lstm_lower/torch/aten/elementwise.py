"""Elementwise arithmetic, comparisons, logic, rounding and choices.

Where two operands are equal, at bounds and at kinks gradients are PyTorch's, and so are signs of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.formulas.special_functions import expm1_of, log1p_of, truncated
from lstm_lower.torch.aten.registry import AtenCall, Result, translates

aten = torch.ops.aten

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64


@translates(aten.add.Tensor, aten.add.Scalar)
def _add(n: AtenCall, x: Any, y: Any, alpha: Any = 1) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    if n.dtype == BOOL:
        return x | y
    return x + (y if alpha == 1 else y * n.scalar(alpha, n.dtype))


@translates(aten.sub.Tensor, aten.sub.Scalar)
def _sub(n: AtenCall, x: Any, y: Any, alpha: Any = 1) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x - (y if alpha == 1 else y * n.scalar(alpha, n.dtype))


@translates(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(n: AtenCall, x: Expr, y: Any, alpha: Any = 1) -> Expr:
    return _sub(n, y, x, alpha)


@translates(aten.mul.Tensor, aten.mul.Scalar)
def _mul(n: AtenCall, x: Any, y: Any) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x & y if n.dtype == BOOL else x * y


@translates(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor)
def _div(n: AtenCall, x: Any, y: Any) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x / y


@translates(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div_mode(n: AtenCall, x: Any, y: Any, rounding_mode: str | None = None) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    if rounding_mode is None:
        return x / y
    if rounding_mode == "trunc":
        return x / y if n.dtype.is_integer() else truncated(x / y)
    return _floor_quotient(x, y)


@translates(aten.floor_divide.default, aten.floor_divide.Scalar)
def _floor_divide(n: AtenCall, x: Any, y: Any) -> Expr:
    return _floor_quotient(*n.promoted(x, y, dtype=n.dtype))


def _floor_quotient(x: Expr, y: Expr) -> Expr:
    """Of real numbers by way of the remainder, as a quotient may be rounded up to a whole number."""
    if x.dtype.is_integer():
        return (x - x % y) / y
    b = x.builder
    by_zero = y.equals(0)
    divisor = b.where(by_zero, 1, y)
    return b.where(by_zero, x / y, b.op(std.Round, (x - _remainder_of(x, divisor)) / divisor))


def _remainder_of(x: Expr, y: Expr) -> Expr:
    """What is left over, with the divisor's sign."""
    if x.dtype.is_integer():
        return x % y
    rest = x.builder.op(std.Mod, x, y, fmod=1)
    other_side = ((rest < 0) & (y > 0)) | ((rest > 0) & (y < 0))
    return rest.builder.where(other_side, rest + y, rest)


@translates(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def _remainder(n: AtenCall, x: Any, y: Any) -> Expr:
    return _remainder_of(*n.promoted(x, y, dtype=n.dtype))


@translates(aten.fmod.Tensor, aten.fmod.Scalar)
def _fmod(n: AtenCall, x: Any, y: Any) -> Expr:
    """What is left over, with the dividend's sign."""
    return n.b.op(std.Mod, *n.promoted(x, y, dtype=n.dtype), fmod=1)


@translates(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar, aten.float_power.Tensor_Scalar)
def _pow(n: AtenCall, x: Any, exponent: Any) -> Expr:
    if isinstance(exponent, (int, float)) and exponent in (1, 2, 3) and isinstance(x, Expr):
        x = x.cast(n.dtype)
        return x if exponent == 1 else x * x if exponent == 2 else x * x * x
    x, exponent = n.promoted(x, exponent, dtype=n.dtype)
    return x**exponent


@translates(aten.square.default)
def _square(n: AtenCall, x: Expr) -> Expr:
    return x * x


@translates(aten.neg.default)
def _neg(n: AtenCall, x: Expr) -> Expr:
    return -x


@translates(aten.clone.default, aten.alias.default, aten.lift_fresh_copy.default, aten.lift.default)
@translates(aten.positive.default, aten.resolve_conj.default, aten.resolve_neg.default, aten.contiguous.default)
def _same(n: AtenCall, x: Expr) -> Expr:
    return x


@translates(aten._to_copy.default, aten.to.dtype)
def _to_copy(n: AtenCall, x: Expr, *_: Any, **__: Any) -> Expr:
    """Another dtype; of what is no number an integer is not defined."""
    return x.cast(n.dtype)


@translates(aten.copy.default)
def _copy(n: AtenCall, x: Expr, y: Expr, *_: Any) -> Expr:
    """Another tensor's values, in the shape and dtype of the first."""
    return _expanded(n, y.cast(n.dtype))


@translates(aten.fill.Scalar, aten.fill.Tensor)
def _fill(n: AtenCall, x: Expr, value: Any) -> Expr:
    return _expanded(n, n.scalar(value, n.dtype))


def _expanded(n: AtenCall, x: Expr) -> Expr:
    sizes = n.shape
    if all(isinstance(size, int) for size in sizes) and x.shape == tuple(sizes):
        return x
    return n.b.op(std.Expand, x, n.vector(sizes))


def _computed(op: type[std.Standard]) -> Callable[[AtenCall, Expr], Expr]:
    """An operator of ONNX's of one operand, computed in the result's dtype."""
    return lambda n, x: n.b.op(op, x.cast(n.dtype))


for _overload, _op in {
    aten.acos: std.Acos,
    aten.acosh: std.Acosh,
    aten.asin: std.Asin,
    aten.asinh: std.Asinh,
    aten.atan: std.Atan,
    aten.atanh: std.Atanh,
    aten.cos: std.Cos,
    aten.cosh: std.Cosh,
    aten.exp: std.Exp,
    aten.log: std.Log,
    aten.reciprocal: std.Reciprocal,
    aten.sigmoid: std.Sigmoid,
    aten.sin: std.Sin,
    aten.sinh: std.Sinh,
    aten.sqrt: std.Sqrt,
    aten.tan: std.Tan,
    aten.tanh: std.Tanh,
}.items():
    translates(_overload.default)(_computed(_op))


@translates(aten.rsqrt.default)
def _rsqrt(n: AtenCall, x: Expr) -> Expr:
    return 1 / x.cast(n.dtype).sqrt()


@translates(aten.abs.default)
def _abs(n: AtenCall, x: Expr) -> Expr:
    return x if x.dtype == BOOL else x.abs()


@translates(aten.log1p.default)
def _log1p(n: AtenCall, x: Expr) -> Expr:
    return log1p_of(x.cast(n.dtype))


@translates(aten.expm1.default)
def _expm1(n: AtenCall, x: Expr) -> Expr:
    return expm1_of(x.cast(n.dtype))


@translates(aten.log2.default)
def _log2(n: AtenCall, x: Expr) -> Expr:
    return x.cast(n.dtype).log() / math.log(2)


@translates(aten.log10.default)
def _log10(n: AtenCall, x: Expr) -> Expr:
    return x.cast(n.dtype).log() / math.log(10)


@translates(aten.exp2.default)
def _exp2(n: AtenCall, x: Expr) -> Expr:
    x = x.cast(n.dtype)
    return x.like(2) ** x


@translates(aten.sign.default, aten.sgn.default)
def _sign(n: AtenCall, x: Expr) -> Expr:
    return x if x.dtype == BOOL else n.b.op(std.Sign, x)


def _rounding(op: type[std.Standard]) -> Callable[[AtenCall, Expr], Expr]:
    return lambda n, x: x if x.dtype.is_integer() else n.b.op(op, x)


translates(aten.ceil.default)(_rounding(std.Ceil))
translates(aten.floor.default)(_rounding(std.Floor))
translates(aten.round.default)(_rounding(std.Round))


@translates(aten.round.decimals)
def _round_decimals(n: AtenCall, x: Expr, *, decimals: int = 0) -> Expr:
    scale = float(10 ** abs(decimals))
    if decimals < 0:
        return n.b.op(std.Round, x / scale) * scale
    return n.b.op(std.Round, x * scale) / scale


@translates(aten.trunc.default, aten.fix.default)
def _trunc(n: AtenCall, x: Expr) -> Expr:
    return x if x.dtype.is_integer() else truncated(x)


@translates(aten.frac.default)
def _frac(n: AtenCall, x: Expr) -> Expr:
    return x - truncated(x)


def _comparison(compare: Callable[[Expr, Expr], Expr]) -> Callable[[AtenCall, Any, Any], Expr]:
    return lambda n, x, y: compare(*n.promoted(x, y))


def _ordered(x: Expr) -> Expr:
    """Operands for which there is an order in ONNX."""
    return x.cast(ir.DataType.INT32) if x.dtype == BOOL else x


for _name, _compare in {
    "eq": Expr.equals,
    "ne": lambda x, y: ~x.equals(y),
    "lt": lambda x, y: _ordered(x) < _ordered(y),
    "le": lambda x, y: _ordered(x) <= _ordered(y),
    "gt": lambda x, y: _ordered(x) > _ordered(y),
    "ge": lambda x, y: _ordered(x) >= _ordered(y),
}.items():
    _packet = getattr(aten, _name)
    translates(_packet.Tensor, _packet.Scalar)(_comparison(_compare))


def _logical(op: type[std.Standard]) -> Callable[[AtenCall, Expr, Expr], Expr]:
    return lambda n, x, y: n.b.op(op, x.cast(BOOL), y.cast(BOOL))


translates(aten.logical_and.default)(_logical(std.And))
translates(aten.logical_or.default)(_logical(std.Or))
translates(aten.logical_xor.default)(_logical(std.Xor))


@translates(aten.logical_not.default)
def _logical_not(n: AtenCall, x: Expr) -> Expr:
    return ~x.cast(BOOL)


def _bitwise(of_bools: type[std.Standard], of_integers: type[std.Standard]) -> Callable[[AtenCall, Any, Any], Expr]:
    def formula(n: AtenCall, x: Any, y: Any) -> Expr:
        return n.b.op(of_bools if n.dtype == BOOL else of_integers, *n.promoted(x, y, dtype=n.dtype))

    return formula


for _name, _of_bools, _of_integers in (
    ("and", std.And, std.BitwiseAnd),
    ("or", std.Or, std.BitwiseOr),
    ("xor", std.Xor, std.BitwiseXor),
):
    for _packet in (getattr(aten, f"bitwise_{_name}"), getattr(aten, f"__{_name}__")):
        translates(_packet.Tensor, _packet.Scalar)(_bitwise(_of_bools, _of_integers))
    translates(getattr(aten, f"bitwise_{_name}").Scalar_Tensor)(_bitwise(_of_bools, _of_integers))


@translates(aten.bitwise_not.default)
def _bitwise_not(n: AtenCall, x: Expr) -> Expr:
    return ~x if x.dtype == BOOL else n.b.op(std.BitwiseNot, x)


@translates(*(getattr(aten.bitwise_left_shift, kind) for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")))
@translates(aten.__lshift__.Tensor, aten.__lshift__.Scalar)
def _left_shift(n: AtenCall, x: Any, y: Any) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x * (x.like(2) ** y)


@translates(*(getattr(aten.bitwise_right_shift, kind) for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")))
@translates(aten.__rshift__.Tensor, aten.__rshift__.Scalar)
def _right_shift(n: AtenCall, x: Any, y: Any) -> Expr:
    """Rounded down, as bits of negative numbers are."""
    x, y = n.promoted(x, y, dtype=n.dtype)
    return _floor_quotient(x, x.like(2) ** y)


@translates(aten.isnan.default)
def _isnan(n: AtenCall, x: Expr) -> Expr:
    return n.b.op(std.IsNaN, x) if x.dtype.is_floating_point() else _everywhere(n, value=False)


@translates(aten.isinf.default)
def _isinf(n: AtenCall, x: Expr) -> Expr:
    return n.b.op(std.IsInf, x) if x.dtype.is_floating_point() else _everywhere(n, value=False)


@translates(aten.isposinf.default)
def _isposinf(n: AtenCall, x: Expr) -> Expr:
    return x.equals(math.inf) if x.dtype.is_floating_point() else _everywhere(n, value=False)


@translates(aten.isneginf.default)
def _isneginf(n: AtenCall, x: Expr) -> Expr:
    return x.equals(-math.inf) if x.dtype.is_floating_point() else _everywhere(n, value=False)


@translates(aten.isfinite.default)
def _isfinite(n: AtenCall, x: Expr) -> Expr:
    return x.abs() < math.inf if x.dtype.is_floating_point() else _everywhere(n, value=True)


def _everywhere(n: AtenCall, *, value: bool) -> Expr:
    return n.b.fill(value, n.vector(n.shape), BOOL)


@translates(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf)
def _where(n: AtenCall, condition: Expr, x: Any, y: Any) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return n.b.op(std.Where, condition.cast(BOOL), x, y)


@translates(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(n: AtenCall, x: Expr, mask: Expr, value: Any) -> Expr:
    return n.b.op(std.Where, mask.cast(BOOL), n.scalar(value, n.dtype), x)


@translates(aten.clamp.default, aten.clamp.Tensor)
def _clamp(n: AtenCall, x: Expr, low: Any = None, high: Any = None) -> Expr:
    """Elements at bounds belong to the operand, and to `high` where that is below `low`."""
    x = x.cast(n.dtype)
    if not isinstance(low, Expr) and not isinstance(high, Expr):
        return n.b.op(std.Clip, x, *[None if bound is None else n.scalar(bound, n.dtype) for bound in (low, high)])
    if low is not None:
        low = n.scalar(low, n.dtype)
        x = n.b.where(x < low, low, x)
    if high is not None:
        high = n.scalar(high, n.dtype)
        x = n.b.where(x > high, high, x)
    return x


@translates(aten.clamp_min.default, aten.clamp_min.Tensor)
def _clamp_min(n: AtenCall, x: Expr, low: Any) -> Expr:
    return _clamp(n, x, low)


@translates(aten.clamp_max.default, aten.clamp_max.Tensor)
def _clamp_max(n: AtenCall, x: Expr, high: Any) -> Expr:
    return _clamp(n, x, None, high)


@translates(aten.maximum.default)
def _maximum(n: AtenCall, x: Expr, y: Expr) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x | y if n.dtype == BOOL else x.maximum(y)


@translates(aten.minimum.default)
def _minimum(n: AtenCall, x: Expr, y: Expr) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x & y if n.dtype == BOOL else x.minimum(y)


def _no_number(x: Expr) -> Expr:
    return ~x.equals(x)


@translates(aten.fmax.default)
def _fmax(n: AtenCall, x: Expr, y: Expr) -> Expr:
    """The larger one, or that which is a number."""
    x, y = n.promoted(x, y, dtype=n.dtype)
    return n.b.where((x >= y) | _no_number(y), x, y)


@translates(aten.fmin.default)
def _fmin(n: AtenCall, x: Expr, y: Expr) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return n.b.where((x <= y) | _no_number(y), x, y)


def has_minus(x: Expr) -> Expr:
    """Whether the sign is a minus, of a zero too."""
    return (x < 0) | (1 / x < 0) if x.dtype.is_floating_point() else x < 0


@translates(aten.signbit.default)
def _signbit(n: AtenCall, x: Expr) -> Expr:
    return _everywhere(n, value=False) if x.dtype == BOOL else has_minus(x)


def with_sign_of(x: Expr, sign: Expr) -> Expr:
    """A number's magnitude with another's sign."""
    return x.builder.where(has_minus(sign), -x.abs(), x.abs())


@translates(aten.ldexp.Tensor)
def _ldexp(n: AtenCall, x: Expr, exponent: Expr) -> Expr:
    x, exponent = n.promoted(x, exponent, dtype=n.dtype)
    return x * (x.like(2) ** exponent)


@translates(aten.copysign.Tensor, aten.copysign.Scalar)
def _copysign(n: AtenCall, x: Expr, y: Any) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return with_sign_of(x, y)


@translates(aten.atan2.default)
def _atan2(n: AtenCall, y: Expr, x: Expr) -> Expr:
    return angle_of(*n.promoted(y, x, dtype=n.dtype))


def angle_of(y: Expr, x: Expr) -> Expr:
    """The angle from the nearest axis, added to that of the axis; no slope at the origin, and signs of zeros count."""
    b = x.builder
    tall, empty = y.abs() > x.abs(), y.equals(0) & x.equals(0)
    over, under = b.where(tall, x, y), b.where(tall, y, x)
    # Two infinite ones are as far from the axis as two that are equal.
    endless = x.abs().equals(math.inf) & y.abs().equals(math.inf)
    ratio = b.where(empty, 0, over) / b.where(empty, 1, under)
    ratio = b.where(endless, b.op(std.Sign, x) * b.op(std.Sign, y), ratio)
    turned = b.op(std.Atan, ratio)
    half = b.where(has_minus(y), x.like(-math.pi), math.pi)
    return b.where(tall, half / 2 - turned, b.where(has_minus(x), half, 0) + turned)


@translates(aten.hypot.default)
def _hypot(n: AtenCall, x: Expr, y: Expr) -> Expr:
    """The length of two legs; their squares may be too large for the dtype."""
    b = n.b
    x, y = n.promoted(x, y, dtype=n.dtype)
    most = detached(x.abs().maximum(y.abs()))
    scale = b.where((most > 0) & (most < math.inf), most, 1)
    x, y = x / scale, y / scale
    return scale * (x * x + y * y).sqrt()


def _log_of_sum(n: AtenCall, x: Expr, y: Expr, base: float) -> Expr:
    b = n.b
    x, y = n.promoted(x, y, dtype=n.dtype)
    most = x.maximum(y)
    held = detached(b.where(most.abs() < math.inf, most, 0))
    x, y = ((each - held) * math.log(base) if base != math.e else each - held for each in (x, y))
    summed = (x.exp() + y.exp()).log()
    return held + (summed / math.log(base) if base != math.e else summed)


@translates(aten.logaddexp.default)
def _logaddexp(n: AtenCall, x: Expr, y: Expr) -> Expr:
    """By the larger one and how much smaller the other is."""
    return _log_of_sum(n, x, y, math.e)


@translates(aten.logaddexp2.default)
def _logaddexp2(n: AtenCall, x: Expr, y: Expr) -> Expr:
    return _log_of_sum(n, x, y, 2)


@translates(aten.xlogy.Tensor, aten.xlogy.Scalar_Other, aten.xlogy.Scalar_Self)
def _xlogy(n: AtenCall, x: Any, y: Any) -> Expr:
    """The product has a slope where the first factor is 0."""
    x, y = n.promoted(x, y, dtype=n.dtype)
    empty = x.equals(0) & (y <= 0)
    return n.b.where(empty, 0, x * n.b.where(empty, 1, y).log())


@translates(aten.sinc.default)
def _sinc(n: AtenCall, x: Expr) -> Expr:
    """Sine of pi x by pi x, with a slope at 0."""
    b, x = n.b, x.cast(n.dtype)
    empty = x.equals(0)
    angle = b.where(empty, 1, x) * math.pi
    return b.where(empty, 1, b.op(std.Sin, angle) / angle)


@translates(aten.lerp.Scalar, aten.lerp.Tensor)
def _lerp(n: AtenCall, x: Expr, end: Expr, weight: Any) -> Expr:
    """From the nearer end, as in PyTorch."""
    x, end = n.promoted(x, end, dtype=n.dtype)
    weight = n.scalar(weight, n.dtype)
    return n.b.where(weight.abs() < 0.5, x + weight * (end - x), end - (end - x) * (1 - weight))


@translates(aten.addcmul.default)
def _addcmul(n: AtenCall, x: Expr, first: Expr, second: Expr, *, value: Any = 1) -> Expr:
    x, first, second = n.promoted(x, first, second, dtype=n.dtype)
    return x + (first * second if value == 1 else n.scalar(value, n.dtype) * first * second)


@translates(aten.addcdiv.default)
def _addcdiv(n: AtenCall, x: Expr, first: Expr, second: Expr, *, value: Any = 1) -> Expr:
    x, first, second = n.promoted(x, first, second, dtype=n.dtype)
    return x + (first / second if value == 1 else n.scalar(value, n.dtype) * (first / second))


@translates(aten.nan_to_num.default)
def _nan_to_num(n: AtenCall, x: Expr, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Result:
    if not x.dtype.is_floating_point():
        return x
    b = n.b
    limits = torch.finfo(n.results[0].dtype)
    x = b.where(_no_number(x), 0.0 if nan is None else nan, x)
    x = b.where(x.equals(math.inf), limits.max if posinf is None else posinf, x)
    return b.where(x.equals(-math.inf), limits.min if neginf is None else neginf, x)


@translates(aten.heaviside.default)
def _heaviside(n: AtenCall, x: Expr, values: Expr) -> Expr:
    b = n.b
    return b.where(x.equals(0), values, b.where(x > 0, x.like(1), 0))


@translates(aten.nextafter.default)
def _nextafter(n: AtenCall, *_: Any) -> Expr:
    raise n.refuse("numbers with all their digits in PyTorch", "write a tolerance of your own")
