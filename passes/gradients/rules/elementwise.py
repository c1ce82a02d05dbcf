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
from lstm_lower.graph.builder import Expr, sigmoid, tanh
from lstm_lower.passes.gradients.registry import Adjoint, Gradients, differentiates, stops

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
def _add(op: std.Standard, n: Adjoint) -> Gradients:
    return [n.dy] * len(op.inputs)


@differentiates(std.Sub)
def _sub(op: std.Sub, n: Adjoint) -> Gradients:
    return n.dy, -n.dy if n.needs(1) else None


@differentiates(std.Mul)
def _mul(op: std.Mul, n: Adjoint) -> Gradients:
    return [n.dy * n.x(1 - i) if n.needs(i) else None for i in range(2)]


@differentiates(std.Div)
def _div(op: std.Div, n: Adjoint) -> Gradients:
    quotient = n.dy / n.x(1)
    return quotient, -(quotient * n.y()) if n.needs(1) else None


@differentiates(std.Pow)
def _pow(op: std.Pow, n: Adjoint) -> Gradients:
    """Of a power that is 0 the base has no gradient, of a base that is 0 the power has none."""
    x, power = n.x(0), n.x(1)
    base = exponent = None
    if n.needs(0) and not _is_number(power, 0):
        if _is_number(power, 2):
            base = n.dy * (x * 2)
        else:
            slope = power.cast(x.dtype) * x ** (power - 1)
            base = n.dy * slope if n.b.facts.uniform(power.value) else n.b.where(power.equals(0), 0, n.dy * slope)
    if n.needs(1):
        # 0 to the power of -1 is infinite and falls as fast as it can; of other powers of 0 nothing changes.
        flat = x.equals(0) & (power >= 0)
        logarithm = n.b.where(flat, 1, x).log()
        exponent = n.dy * n.b.where(flat, 0, n.y() * logarithm)
    return base, exponent


@differentiates(std.Mod)
def _mod(op: std.Mod, n: Adjoint) -> Gradients:
    """Of x - k m, where k is a whole number."""
    return n.dy, -(n.dy * n.b.op(std.Round, (n.x(0) - n.y()) / n.x(1))) if n.needs(1) else None


@differentiates(std.Min, std.Max)
def _extreme(op: std.Standard, n: Adjoint) -> Gradients:
    """Equal shares of the operands that are the result, of all where it is NaN: each may be why."""
    if len(op.inputs) == 1:
        return [n.dy]
    y, behind = n.y(), std.Less if isinstance(op, std.Max) else std.Greater
    others = [n.b.op(behind, n.x(i), y) for i in range(len(op.inputs))]
    shares = len(others) - functools.reduce(operator.add, [other.cast(n.dy.dtype) for other in others])
    share = n.dy / shares
    return [n.b.where(other, 0, share) for other in others]


@differentiates(std.Mean)
def _mean(op: std.Mean, n: Adjoint) -> Gradients:
    return [n.dy / len(op.inputs)] * len(op.inputs)


@differentiates(std.Where)
def _where(op: std.Where, n: Adjoint) -> Gradients:
    condition = n.x(0)
    return None, n.b.where(condition, n.dy, 0), n.b.where(condition, 0, n.dy)


@differentiates(std.PRelu)
def _prelu(op: std.PRelu, n: Adjoint) -> Gradients:
    x, positive = n.x(0), n.x(0) > 0
    return n.dy * n.b.where(positive, x.like(1), n.x(1)), n.b.where(positive, 0, n.dy * x)


@differentiates(std.Clip)
def _clip(op: std.Clip, n: Adjoint) -> Gradients:
    """Elements at a bound belong to the operand, those beyond it to it; all to `high` where that is below `low`.

    As in PyTorch NaN belongs to none of them.
    """
    x, low, high = n.x(0), n.given(1), n.given(2)
    inside = None if low is None else x >= low
    if high is not None:
        fits = x <= high
        inside = fits if inside is None else inside & fits
    dx = n.dy if inside is None else n.b.where(inside, n.dy, 0)
    below = None if low is None else x < low
    above = None if high is None else x > high
    if low is not None and high is not None and (n.needs(1) or n.needs(2)):
        crossed = low > high
        below = (x < low) & ~crossed
        above = (x > high) | crossed
    return dx, *(None if outside is None else n.b.where(outside, n.dy, 0) for outside in (below, above))


@differentiates(std.Cast, std.CastLike, std.Identity)
def _same(op: std.Unary, n: Adjoint) -> Gradients:
    # The walk casts to the operand's dtype.
    return [n.dy]


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


def _unary(slope: Slope) -> Callable[[std.Unary, Adjoint], Gradients]:
    return lambda op, n: [slope(n.dy, n.x(), n.y())]


for _view, _slope in _SLOPES.items():
    differentiates(_view)(_unary(_slope))


def _piecewise(dy: Expr, x: Expr, low: float, high: float, between: Expr) -> Expr:
    """Nothing up to `low`, all of it from `high` on, and for NaN."""
    return dy.builder.where(x <= low, 0, dy.builder.where(x < high, between, dy))


@differentiates(std.Elu, std.Celu, std.Selu)
def _elu(op: std.Elu | std.Celu | std.Selu, n: Adjoint) -> Gradients:
    x, alpha = n.x(), op.alpha
    scale = op.gamma if isinstance(op, std.Selu) else 1.0
    # exp of what is not chosen may not overflow into NaN: 0 * inf.
    below = n.b.where(x <= 0, x, 0)
    if isinstance(op, std.Celu):
        return [n.dy * (below / alpha).exp()]
    return [n.dy * (below.exp() * n.b.where(x <= 0, x.like(alpha * scale), scale))]


@differentiates(std.LeakyRelu)
def _leaky_relu(op: std.LeakyRelu, n: Adjoint) -> Gradients:
    return [n.dy * n.b.where(n.x() > 0, n.dy.like(1), op.alpha)]


@differentiates(std.ThresholdedRelu)
def _thresholded_relu(op: std.ThresholdedRelu, n: Adjoint) -> Gradients:
    return [n.b.where(n.x() <= op.alpha, 0, n.dy)]


@differentiates(std.Shrink)
def _shrink(op: std.Shrink, n: Adjoint) -> Gradients:
    return [n.b.where(n.x().abs() <= op.lambd, 0, n.dy)]


@differentiates(std.HardSigmoid)
def _hard_sigmoid(op: std.HardSigmoid, n: Adjoint) -> Gradients:
    alpha, y = op.alpha, n.y()
    return [n.b.where(y > 0, n.b.where(y < 1, n.dy * alpha, 0), 0)]


@differentiates(std.Mish)
def _mish(op: std.Mish, n: Adjoint) -> Gradients:
    """X tanh(softplus(x))."""
    x = n.x()
    inner = tanh(n.b.op(std.Softplus, x))
    return [n.dy * (inner + x * sigmoid(x) * (1 - inner) * (1 + inner))]


@differentiates(std.Swish)
def _swish(op: std.Swish, n: Adjoint) -> Gradients:
    """X sigmoid(alpha x)."""
    x = n.x()
    inner = x if op.alpha == 1 else x * op.alpha
    gate = sigmoid(inner)
    return [n.dy * (gate * (1 + inner * (1 - gate)))]


@differentiates(std.Gelu)
def _gelu(op: std.Gelu, n: Adjoint) -> Gradients:
    """X Phi(x), or the approximation by tanh (Hendrycks and Gimpel, 2016)."""
    x = n.x()
    if op.approximate == "tanh":
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        inner = tanh((x + x * x * x * cubic) * scale)
        slope = (1 - inner) * (1 + inner) * ((x * x * (3 * cubic) + 1) * scale)
        return [n.dy * ((inner + 1) * 0.5 + x * 0.5 * slope)]
    # erfc of a large negative number without cancellation is not to be had in ONNX: as PyTorch, (1 + erf) / 2.
    distribution = (n.b.op(std.Erf, x * math.sqrt(0.5)) + 1) * 0.5
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return [n.dy * (distribution + x * density)]
