"""Lowering of the functions of one operand, and of what hands its operand on."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.dtypes import is_complex
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.ops.gradients import SELU_SCALE, SELU_SCALE_ALPHA
from lstm_lower.ops.ordinary import math, passing
from lstm_lower.passes.formulas import error_functions
from lstm_lower.passes.formulas.elementary import expm1_of
from lstm_lower.passes.formulas.gamma import digamma, lgamma
from lstm_lower.passes.rules.ordinary import transcendental
from lstm_lower.passes.rules.ordinary.tables import lowers_by, standard
from lstm_lower.passes.rules.registry import Node, lowers

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


def _or_in_float64(op: type[std.Standard], formula: transcendental.Formula) -> transcendental.Formula:
    """An operator that onnxruntime has in float32 only, and a formula for float64."""

    def either(x: Expr) -> Expr:
        return formula(x) if x.dtype == ir.DataType.DOUBLE else x.builder.op(op, x)

    return either


def _in_float64(formula: transcendental.Formula) -> transcendental.Formula:
    """A formula whose results where they are small would else lose digits: the exponential of a square."""
    return lambda x: formula(x.cast(ir.DataType.DOUBLE))


def _elu(x: Expr) -> Expr:
    return x.builder.where(x < 0, expm1_of(x), x)


def _selu(x: Expr) -> Expr:
    return x.builder.where(x < 0, expm1_of(x) * SELU_SCALE_ALPHA, x * SELU_SCALE)


def _softplus(x: Expr) -> Expr:
    return transcendental.log_of_one_and((-x.abs()).exp()) + x.maximum(0)


lowers_by(
    {
        math.Abs: standard(std.Abs),
        math.Neg: standard(std.Neg),
        math.Sign: standard(std.Sign),
        math.Round: _rounded,
        math.Square: lambda x: x * x,
        math.Invert: _invert,
        math.Sqrt: standard(std.Sqrt),
        math.Rsqrt: lambda x: x.builder.op(std.Reciprocal, x.sqrt()),
        math.Reciprocal: standard(std.Reciprocal),
        math.Exp: standard(std.Exp),
        math.Log: standard(std.Log),
        math.Sin: standard(std.Sin),
        math.Cos: standard(std.Cos),
        math.Tan: _or_in_float64(std.Tan, transcendental.tan),
        math.Asin: _or_in_float64(std.Asin, transcendental.asin),
        math.Acos: _or_in_float64(std.Acos, transcendental.acos),
        math.Atan: _or_in_float64(std.Atan, transcendental.atan),
        math.Sinh: _or_in_float64(std.Sinh, transcendental.sinh),
        math.Cosh: _or_in_float64(std.Cosh, transcendental.cosh),
        math.Asinh: _or_in_float64(std.Asinh, transcendental.asinh),
        math.Acosh: _or_in_float64(std.Acosh, transcendental.acosh),
        math.Atanh: _or_in_float64(std.Atanh, transcendental.atanh),
        math.Sigmoid: _sigmoid,
        math.Tanh: standard(std.Tanh),
        math.Erf: _or_in_float64(std.Erf, error_functions.erf),
        math.Erfc: _in_float64(error_functions.erfc),
        math.Erfinv: _in_float64(error_functions.erfinv),
        math.Ndtri: _in_float64(error_functions.ndtri),
        math.Lgamma: lgamma,
        math.Digamma: digamma,
        math.Floor: standard(std.Floor),
        math.Ceil: standard(std.Ceil),
        math.Rint: _rounded,
        math.Relu: _relu,
        math.Relu6: lambda x: _relu(x).minimum(6),
        math.Elu: _or_in_float64(std.Elu, _elu),
        math.Selu: _or_in_float64(std.Selu, _selu),
        math.Softplus: _or_in_float64(std.Softplus, _softplus),
        math.Softsign: lambda x: x / (1 + x.abs()),
        passing.Identity: _same,
        passing.RefIdentity: _same,
        passing.StopGradient: detached,
        passing.DeepCopy: _same,
    }
)


@lowers(
    passing.Copy,
    passing.CopyHost,
    passing.DebugIdentity,
    passing.DebugIdentityV2,
    passing.DebugIdentityV3,
    repeatable=True,
)
def handed_on(n: Node) -> dict[str, Expr]:
    """The input."""
    return {"output": n.input}


@lowers(passing.CheckNumerics, passing.CheckNumericsV2, repeatable=True)
def check_numerics(n: Node) -> dict[str, Expr]:
    """The input: a graph of standard operators raises no errors."""
    return {"output": n.tensor}


@lowers(passing.IdentityN, repeatable=True)
def identity_n(n: Node) -> dict[str, list[Expr]]:
    """The inputs."""
    return {"output": n.variadic("input")}


@lowers(math.LeakyRelu, repeatable=True)
def leaky_relu(n: Node) -> dict[str, Expr]:
    """A choice by the sign; NaN stays NaN on either side."""
    return {"activations": n.features * n.builder.where(n.features > 0, n.features.like(1), n.alpha)}


@lowers(math.Cast, repeatable=True)
def cast(n: Node) -> dict[str, Expr]:
    """A Cast; truth is what is not 0."""
    source, target = n.call.types["SrcT"], n.DstT
    narrows = source is not None and source.is_floating_point() and target.bitwidth < source.bitwidth
    if n.Truncate and narrows and target.is_floating_point():
        raise n.unsupported("attribute Truncate", "rounding to the nearest (ONNX's Cast does no other)", "truncation")
    if is_complex(source) and target == ir.DataType.BOOL:
        raise n.unsupported("attribute DstT", "numbers, since x is of complex ones", "bool")
    return {"y": n.x.cast(target)}
