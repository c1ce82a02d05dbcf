"""Gradients of elementwise operators.

Results have the broadcast shape; the walk sums them to the operands'. At kinks they are what PyTorch has: zero for
Relu at 0, equal shares for Max and Min of equal operands.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, sigmoid, tanh
from lstm_lower.passes.gradients.registry import Cotangents, Gradients, differentiates, stops

stops(
    std.Logical,
    std.Test,
    std.Ceil,
    std.Floor,
    std.Round,
    std.Sign,
    std.BitwiseAnd,
    std.BitwiseOr,
    std.BitwiseXor,
    std.BitwiseNot,
    std.BitShift,
)


def _is_number(x: Expr, number: float) -> bool:
    return x.builder.facts.uniform(x.value) == number


@differentiates(std.Add, std.Sum)
def _add(op: std.Standard, b: Builder, dys: Cotangents) -> Gradients:
    return [dys[0]] * len(op.inputs)


@differentiates(std.Sub)
def _sub(op: std.Sub, b: Builder, dys: Cotangents) -> Gradients:
    return dys[0], -dys[0] if dys.needs(1) else None


@differentiates(std.Mul)
def _mul(op: std.Mul, b: Builder, dys: Cotangents) -> Gradients:
    return [dys[0] * b.operand(op, 1 - i) if dys.needs(i) else None for i in range(2)]


@differentiates(std.Div)
def _div(op: std.Div, b: Builder, dys: Cotangents) -> Gradients:
    quotient = dys[0] / b.operand(op, 1)
    return quotient, -(quotient * b.output(op)) if dys.needs(1) else None


@differentiates(std.Pow)
def _pow(op: std.Pow, b: Builder, dys: Cotangents) -> Gradients:
    """Of a power that is 0 the base has no gradient, of a base that is 0 the power has none."""
    x, power = b.operand(op), b.operand(op, 1)
    base = exponent = None
    if dys.needs(0) and not _is_number(power, 0):
        if _is_number(power, 2):
            base = dys[0] * (x * 2)
        else:
            slope = power.cast(x.dtype) * x ** (power - 1)
            base = dys[0] * slope if b.facts.uniform(power.value) else b.where(power.equals(0), 0, dys[0] * slope)
    if dys.needs(1):
        # 0 to the power of -1 is infinite and falls as fast as it can; of other powers of 0 nothing changes.
        flat = x.equals(0) & (power >= 0)
        logarithm = b.where(flat, 1, x).log()
        exponent = dys[0] * b.where(flat, 0, b.output(op) * logarithm)
    return base, exponent


@differentiates(std.Mod)
def _mod(op: std.Mod, b: Builder, dys: Cotangents) -> Gradients:
    """Of x - k m, where k is a whole number."""
    return dys[0], -(dys[0] * b.op(std.Round, (b.operand(op) - b.output(op)) / b.operand(op, 1))) if dys.needs(
        1
    ) else None


@differentiates(std.Min, std.Max)
def _extreme(op: std.Standard, b: Builder, dys: Cotangents) -> Gradients:
    """Equal shares of the operands that are the result, of all where it is NaN: each may be why."""
    if len(op.inputs) == 1:
        return dys[0]
    y, behind = b.output(op), std.Less if isinstance(op, std.Max) else std.Greater
    others = [b.op(behind, b.operand(op, i), y) for i in range(len(op.inputs))]
    shares = len(others) - functools.reduce(operator.add, [other.cast(dys[0].dtype) for other in others])
    share = dys[0] / shares
    return [b.where(other, 0, share) for other in others]


@differentiates(std.Mean)
def _mean(op: std.Mean, b: Builder, dys: Cotangents) -> Gradients:
    return [dys[0] / len(op.inputs)] * len(op.inputs)


@differentiates(std.Where)
def _where(op: std.Where, b: Builder, dys: Cotangents) -> Gradients:
    condition = b.operand(op)
    return None, b.where(condition, dys[0], 0), b.where(condition, 0, dys[0])


@differentiates(std.PRelu)
def _prelu(op: std.PRelu, b: Builder, dys: Cotangents) -> Gradients:
    x, positive = b.operand(op), b.operand(op) > 0
    return dys[0] * b.where(positive, x.like(1), b.operand(op, 1)), b.where(positive, 0, dys[0] * x)


@differentiates(std.Clip)
def _clip(op: std.Clip, b: Builder, dys: Cotangents) -> Gradients:
    """Elements at a closed bound belong to the operand, those beyond to the bound; all to `high` if it is below `low`.

    As in PyTorch NaN belongs to none of them.
    """
    x, low, high = b.operand(op), b.optional(op, 1), b.optional(op, 2)
    above_low, below_high = (Expr.__gt__, Expr.__lt__) if op.is_open else (Expr.__ge__, Expr.__le__)
    inside = None if low is None else above_low(x, low)
    if high is not None:
        fits = below_high(x, high)
        inside = fits if inside is None else inside & fits
    dx = dys[0] if inside is None else b.where(inside, dys[0], 0)
    below = None if low is None else x < low
    above = None if high is None else x > high
    if low is not None and high is not None and (dys.needs(1) or dys.needs(2)):
        crossed = low > high
        below = (x < low) & ~crossed
        above = (x > high) | crossed
    return dx, *(None if outside is None else b.where(outside, dys[0], 0) for outside in (below, above))


@differentiates(std.Cast, std.CastLike, std.Identity)
def _same(op: std.Unary, b: Builder, dys: Cotangents) -> Gradients:
    # The walk casts to the operand's dtype.
    return dys[0]


# The gradient of an operand x with result y by that of the result.
Slope = Callable[[Expr, Expr, Expr], Expr]

# Where PyTorch has a gradient for NaN (most rectifiers hand it on), it is that one.
_SLOPES: dict[type[std.Unary], Slope] = {
    std.Neg: lambda dy, x, y: -dy,
    std.Abs: lambda dy, x, y: dy * dy.builder.op(std.Sign, x),
    std.Acos: lambda dy, x, y: -dy / ((1 - x) * (1 + x)).sqrt(),
    std.Acosh: lambda dy, x, y: dy / ((x - 1) * (x + 1)).sqrt(),
    std.Asin: lambda dy, x, y: dy / ((1 - x) * (1 + x)).sqrt(),
    std.Asinh: lambda dy, x, y: dy / (x * x + 1).sqrt(),
    std.Atan: lambda dy, x, y: dy / (x * x + 1),
    std.Atanh: lambda dy, x, y: dy / ((1 - x) * (1 + x)),
    std.Cos: lambda dy, x, y: -dy * dy.builder.op(std.Sin, x),
    std.Cosh: lambda dy, x, y: dy * dy.builder.op(std.Sinh, x),
    std.Erf: lambda dy, x, y: dy * ((-(x * x)).exp() * (2 / math.sqrt(math.pi))),
    std.Exp: lambda dy, x, y: dy * y,
    std.HardSwish: lambda dy, x, y: _piecewise(dy, x, -3, 3, dy * (x / 3 + 0.5)),
    std.Log: lambda dy, x, y: dy / x,
    std.Reciprocal: lambda dy, x, y: -dy * (y * y),
    std.Relu: lambda dy, x, y: dy.builder.where(y <= 0, 0, dy),
    std.Sigmoid: lambda dy, x, y: dy * y * (1 - y),
    std.Sin: lambda dy, x, y: dy * dy.builder.op(std.Cos, x),
    std.Sinh: lambda dy, x, y: dy * dy.builder.op(std.Cosh, x),
    std.Softplus: lambda dy, x, y: dy * sigmoid(x),
    std.Softsign: lambda dy, x, y: dy / ((1 + x.abs()) * (1 + x.abs())),
    std.Sqrt: lambda dy, x, y: dy / (y * 2),
    std.Tan: lambda dy, x, y: dy * (y * y + 1),
    std.Tanh: lambda dy, x, y: dy * (1 - y) * (1 + y),
}


def _unary(slope: Slope) -> Callable[[std.Unary, Builder, Cotangents], Gradients]:
    return lambda op, b, dys: slope(dys[0], b.operand(op), b.output(op))


for _view, _slope in _SLOPES.items():
    differentiates(_view)(_unary(_slope))


def _piecewise(dy: Expr, x: Expr, low: float, high: float, between: Expr) -> Expr:
    """Nothing up to `low`, all of it from `high` on, and for NaN."""
    return dy.builder.where(x <= low, 0, dy.builder.where(x < high, between, dy))


@differentiates(std.Elu, std.Celu, std.Selu)
def _elu(op: std.Elu | std.Celu | std.Selu, b: Builder, dys: Cotangents) -> Gradients:
    x, alpha = b.operand(op), op.alpha
    scale = op.gamma if isinstance(op, std.Selu) else 1.0
    # exp of what is not chosen may not overflow into NaN: 0 * inf.
    below = b.where(x <= 0, x, 0)
    if isinstance(op, std.Celu):
        return dys[0] * (below / alpha).exp()
    return dys[0] * (below.exp() * b.where(x <= 0, x.like(alpha * scale), scale))


@differentiates(std.LeakyRelu)
def _leaky_relu(op: std.LeakyRelu, b: Builder, dys: Cotangents) -> Gradients:
    return dys[0] * b.where(b.operand(op) > 0, dys[0].like(1), op.alpha)


@differentiates(std.ThresholdedRelu)
def _thresholded_relu(op: std.ThresholdedRelu, b: Builder, dys: Cotangents) -> Gradients:
    return b.where(b.operand(op) <= op.alpha, 0, dys[0])


@differentiates(std.Shrink)
def _shrink(op: std.Shrink, b: Builder, dys: Cotangents) -> Gradients:
    return b.where(b.operand(op).abs() <= op.lambd, 0, dys[0])


@differentiates(std.HardSigmoid)
def _hard_sigmoid(op: std.HardSigmoid, b: Builder, dys: Cotangents) -> Gradients:
    alpha, y = op.alpha, b.output(op)
    return b.where(y > 0, b.where(y < 1, dys[0] * alpha, 0), 0)


@differentiates(std.Mish)
def _mish(op: std.Mish, b: Builder, dys: Cotangents) -> Gradients:
    """X tanh(softplus(x))."""
    x = b.operand(op)
    inner = tanh(b.op(std.Softplus, x))
    return dys[0] * (inner + x * sigmoid(x) * (1 - inner) * (1 + inner))


@differentiates(std.Swish)
def _swish(op: std.Swish, b: Builder, dys: Cotangents) -> Gradients:
    """X sigmoid(alpha x)."""
    x = b.operand(op)
    inner = x if op.alpha == 1 else x * op.alpha
    gate = sigmoid(inner)
    return dys[0] * (gate * (1 + inner * (1 - gate)))


@differentiates(std.Gelu)
def _gelu(op: std.Gelu, b: Builder, dys: Cotangents) -> Gradients:
    """X Phi(x), or the approximation by tanh (Hendrycks and Gimpel, 2016)."""
    x = b.operand(op)
    if op.approximate == "tanh":
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        inner = tanh((x + x * x * x * cubic) * scale)
        slope = (1 - inner) * (1 + inner) * ((x * x * (3 * cubic) + 1) * scale)
        return dys[0] * ((inner + 1) * 0.5 + x * 0.5 * slope)
    # erfc of a large negative number without cancellation is not to be had in ONNX: as PyTorch, (1 + erf) / 2.
    distribution = (b.op(std.Erf, x * math.sqrt(0.5)) + 1) * 0.5
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return dys[0] * (distribution + x * density)
