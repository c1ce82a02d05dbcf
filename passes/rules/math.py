"""Lowering of the functions of one operand, and of what hands its operand on."""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.dtypes import is_complex, is_floating
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, detached
from lstm_lower.ops.raw import COMPLEX, COMPUTED, FLOATS, PAIRED, Binary, RawOp
from lstm_lower.passes.formulas import special_functions
from lstm_lower.passes.formulas.special_functions import SELU_SCALE, SELU_SCALE_ALPHA, digamma, expm1_of, lgamma
from lstm_lower.passes.rules.registry import Node, lowers, lowers_by, standard

_UNSIGNED_MAX = {ir.DataType.UINT64: 2**64 - 1}


def _same(x: Expr) -> Expr:
    return x


def _sigmoid(x: Expr) -> Expr:
    """Written out: onnxruntime's Sigmoid is exact to an absolute 1e-8 only, which shows where the result is small."""
    return x.builder.op(std.Reciprocal, 1 + (-x).exp())


def _rounded(x: Expr) -> Expr:
    return x.builder.op(std.Round, x) if x.dtype.is_floating_point() else x


def _relu(x: Expr) -> Expr:
    return x.builder.op(std.Relu, x) if x.dtype.is_floating_point() else x.maximum(0)


def _invert(x: Expr) -> Expr:
    """The number that is the same distance from the other end: of carriers, what is cast back."""
    return _UNSIGNED_MAX.get(x.dtype, -1) - x


def _or_in_float64(op: type[std.Standard], formula: special_functions.Formula) -> special_functions.Formula:
    """An operator that onnxruntime has in float32 only, and a formula for float64."""

    def either(x: Expr) -> Expr:
        return formula(x) if x.dtype == ir.DataType.DOUBLE else x.builder.op(op, x)

    return either


def _in_float64(formula: special_functions.Formula) -> special_functions.Formula:
    """A formula whose results where they are small would else lose digits: the exponential of a square."""
    return lambda x: formula(x.cast(ir.DataType.DOUBLE))


def _elu(x: Expr) -> Expr:
    return x.builder.where(x < 0, expm1_of(x), x)


def _selu(x: Expr) -> Expr:
    return x.builder.where(x < 0, expm1_of(x) * SELU_SCALE_ALPHA, x * SELU_SCALE)


def _softplus(x: Expr) -> Expr:
    return special_functions.log1p_of((-x.abs()).exp()) + x.maximum(0)


class Abs(RawOp):
    """The number without its sign."""


class Neg(RawOp):
    """-x."""


class Sign(RawOp, T=(*COMPUTED, "int8", "int16")):
    """-1, 0 or 1."""


class Round(RawOp, T=(*COMPUTED, "int8", "int16")):
    """The nearest whole number; of two, the even one."""


class Square(RawOp):
    """x * x."""


class Invert(RawOp):
    """All bits the other way round."""


class Sqrt(RawOp, T=FLOATS):
    """Square root."""


class Rsqrt(RawOp, T=FLOATS):
    """One over the square root."""


class Reciprocal(RawOp, T=(*FLOATS, *COMPLEX)):
    """1 / x."""


class Exp(RawOp):
    """The exponential function."""


class Log(RawOp, T=FLOATS):
    """Natural logarithm."""


class Sin(RawOp, T=FLOATS):
    """Sine."""


class Cos(RawOp, T=FLOATS):
    """Cosine."""


class Tan(RawOp, T=FLOATS):
    """Tangent."""


class Asin(RawOp, T=FLOATS):
    """Inverse sine."""


class Acos(RawOp, T=FLOATS):
    """Inverse cosine."""


class Atan(RawOp, T=FLOATS):
    """Inverse tangent."""


class Sinh(RawOp, T=FLOATS):
    """Hyperbolic sine."""


class Cosh(RawOp, T=FLOATS):
    """Hyperbolic cosine."""


class Asinh(RawOp, T=FLOATS):
    """Inverse hyperbolic sine."""


class Acosh(RawOp, T=FLOATS):
    """Inverse hyperbolic cosine."""


class Atanh(RawOp, T=FLOATS):
    """Inverse hyperbolic tangent."""


class Sigmoid(RawOp, T=FLOATS):
    """The logistic function, 1 / (1 + exp(-x)), accurate also where it is close to 0."""


class Tanh(RawOp, T=FLOATS):
    """Hyperbolic tangent."""


class Erf(RawOp):
    """Error function."""


class Erfc(RawOp):
    """Complementary error function, 1 - erf(x), accurate also where it is close to 0."""


class Erfinv(RawOp, T=PAIRED):
    """The inverse of Erf: infinite at 1 and -1, NaN beyond."""


class Ndtri(RawOp, T=PAIRED):
    """The quantile of the normal distribution: infinite at 0 and 1, NaN beyond."""


class Lgamma(RawOp):
    """Logarithm of the magnitude of the gamma function."""


class Digamma(RawOp):
    """Derivative of Lgamma."""


class Floor(RawOp):
    """The next whole number below."""


class Ceil(RawOp):
    """The next whole number above."""


class Rint(RawOp):
    """The nearest whole number; of two, the even one."""


class Relu(RawOp):
    """max(x, 0)."""


class Relu6(RawOp):
    """min(max(x, 0), 6)."""


class Elu(RawOp):
    """x where positive, exp(x) - 1 elsewhere."""


class Selu(RawOp):
    """The scaled exponential linear unit."""


class Softplus(RawOp):
    """log(exp(x) + 1), accurate also where it is close to 0."""


class Softsign(RawOp):
    """x / (1 + abs(x))."""


class Identity(RawOp):
    """Its input."""


class RefIdentity(RawOp):
    """Its input, a variable."""


class StopGradient(RawOp):
    """Its input; in TensorFlow, no gradient goes through it."""


class DeepCopy(RawOp):
    """Its input."""


lowers_by(
    {
        Abs: standard(std.Abs),
        Neg: standard(std.Neg),
        Sign: standard(std.Sign),
        Round: _rounded,
        Square: lambda x: x * x,
        Invert: _invert,
        Sqrt: standard(std.Sqrt),
        Rsqrt: lambda x: x.builder.op(std.Reciprocal, x.sqrt()),
        Reciprocal: standard(std.Reciprocal),
        Exp: standard(std.Exp),
        Log: standard(std.Log),
        Sin: standard(std.Sin),
        Cos: standard(std.Cos),
        Tan: _or_in_float64(std.Tan, special_functions.tan),
        Asin: _or_in_float64(std.Asin, special_functions.asin),
        Acos: _or_in_float64(std.Acos, special_functions.acos),
        Atan: _or_in_float64(std.Atan, special_functions.atan),
        Sinh: _or_in_float64(std.Sinh, special_functions.sinh),
        Cosh: _or_in_float64(std.Cosh, special_functions.cosh),
        Asinh: _or_in_float64(std.Asinh, special_functions.asinh),
        Acosh: _or_in_float64(std.Acosh, special_functions.acosh),
        Atanh: _or_in_float64(std.Atanh, special_functions.atanh),
        Sigmoid: _sigmoid,
        Tanh: standard(std.Tanh),
        Erf: _or_in_float64(std.Erf, special_functions.erf),
        Erfc: _in_float64(special_functions.erfc),
        Erfinv: _in_float64(special_functions.erfinv),
        Ndtri: _in_float64(special_functions.ndtri),
        Lgamma: lgamma,
        Digamma: digamma,
        Floor: standard(std.Floor),
        Ceil: standard(std.Ceil),
        Rint: _rounded,
        Relu: _relu,
        Relu6: lambda x: _relu(x).minimum(6),
        Elu: _or_in_float64(std.Elu, _elu),
        Selu: _or_in_float64(std.Selu, _selu),
        Softplus: _or_in_float64(std.Softplus, _softplus),
        Softsign: lambda x: x / (1 + x.abs()),
        Identity: _same,
        RefIdentity: _same,
        StopGradient: detached,
        DeepCopy: _same,
    }
)


class Copy(RawOp):
    """Its input, for a debugger."""


class CopyHost(RawOp):
    """Its input, for a debugger."""


class DebugIdentity(RawOp):
    """Its input, for a debugger."""


class DebugIdentityV2(RawOp):
    """Its input, for a debugger."""


class DebugIdentityV3(RawOp):
    """Its input, for a debugger."""


@lowers(
    Copy,
    CopyHost,
    DebugIdentity,
    DebugIdentityV2,
    DebugIdentityV3,
    repeatable=True,
)
def handed_on(n: Node, _: Builder) -> Expr:
    """The input."""
    return n.input


class CheckNumerics(RawOp):
    """Its input; where a number of it is not finite, TensorFlow raises an error with the message."""


class CheckNumericsV2(RawOp):
    """Its input; the error tells the sign of an infinity."""


@lowers(CheckNumerics, CheckNumericsV2, repeatable=True)
def check_numerics(n: Node, _: Builder) -> Expr:
    """The input: a graph of standard operators raises no errors."""
    return n.tensor


class IdentityN(RawOp):
    """Its inputs."""


@lowers(IdentityN, repeatable=True)
def identity_n(n: Node, _: Builder) -> list[Expr]:
    """The inputs."""
    return n.variadic("input")


class LeakyRelu(RawOp):
    """x where positive, alpha * x elsewhere."""

    rounded = ("alpha",)


@lowers(LeakyRelu, repeatable=True)
def leaky_relu(n: Node, b: Builder) -> Expr:
    """A choice by the sign; NaN stays NaN on either side."""
    return n.features * b.where(n.features > 0, n.features.like(1), n.alpha)


class Cast(RawOp):
    """The operand in another dtype; floating-point numbers are truncated to integers.

    `Truncate` drops digits too where a floating-point number gets fewer of them.
    """


@lowers(Cast, repeatable=True)
def cast(n: Node, _: Builder) -> Expr:
    """A Cast; truth is what is not 0."""
    source, target = n.call.types["SrcT"], n.DstT
    narrows = is_floating(source) and target.bitwidth < source.bitwidth
    if n.Truncate and narrows and target.is_floating_point():
        raise n.unsupported("attribute Truncate", "rounding to the nearest (ONNX's Cast does no other)", "truncation")
    if is_complex(source) and target == ir.DataType.BOOL:
        raise n.unsupported("attribute DstT", "numbers, since x is of complex ones", "bool")
    return n.x.cast(target)


_DOUBLE = ir.DataType.DOUBLE


class Zeta(Binary):
    """Hurwitz's zeta function, the sum of (q + k)^-x over k = 0, 1, ...; NaN for q below -1000."""


lowers_by({Zeta: special_functions.zeta})


class Polygamma(Binary):
    """The derivative of order a of digamma at x: a whole number of at least 0, NaN for others."""


@lowers(Polygamma)
def polygamma(n: Node, b: Builder) -> Expr:
    """A formula of its own for a small order that is known, else the zeta function; at poles what TensorFlow has."""
    order, x, known = n.a.cast(_DOUBLE), n.x.cast(_DOUBLE), n.constant("a")
    if known is not None and known.size == 1 and known.reshape(-1)[0] in range(special_functions.HIGHEST + 1):
        first = int(known.reshape(-1)[0])
        # The order may have more axes than the operand.
        value = (special_functions.polygamma(x, first) if first else special_functions.digamma(x)) + b.zeros_like(order)
    else:
        value = b.where(order.equals(0), special_functions.digamma(x), special_functions.polygamma_of(order, x))
    odd = (order > 0) & order.equals((order / 2).floor() * 2 + 1)
    at_pole = b.where(odd, math.inf, order.like(math.nan))
    return b.where(special_functions.whole_until_0(x), at_pole, value).cast(n.x.dtype)
