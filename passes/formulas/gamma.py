"""The logarithm of the gamma function and its derivatives, in float64 whatever comes in.

Stirling's series from 8 on, below it by recurrence, and by reflection below 1/2. Source: Abramowitz and Stegun,
Handbook of Mathematical Functions, 6.1.15, 6.1.17, 6.1.41, 6.3.5, 6.3.7, 6.3.18,
6.4.6, 6.4.7, 6.4.10, 6.4.11, 23.2.7, and 23.1.30 for the zeta function.
"""

from __future__ import annotations

import functools
import math
import operator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.sizes import up_to

# B[2k] / (2k (2k - 1)), of Bernoulli's numbers, for k = 1, 2, ...: the series of lgamma. That of digamma has another
# factor of 2k - 1.
_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)

# B[2k] / (2k)!, for k = 1, 2, ...: the terms of Euler and Maclaurin's formula.
_TERMS = [
    factor * 2 * k * (2 * k - 1) / math.factorial(2 * k) for k, factor in enumerate((*_SERIES, 43867 / 244188), 1)
]

# Where the series is as exact as float64 is.
_FROM = 8

# The highest order of polygamma that has a formula of its own.
HIGHEST = 10

# How far below 0 the zeta function is summed up.
_LEAST = -1000


def _of(op: type[std.Standard], x: Expr) -> Expr:
    return x.builder.op(op, x)


class _Argument:
    """The operand taken apart.

    Attributes:
        x: the operand in float64.
        mirrored: whether it lies below 1/2.
        z: the operand, or 1 less it, whichever is larger.
        low: z, but `start` where it is larger.
        large: z from `start` on, as much more below.
        sine, cosine: of pi x.
    """

    def __init__(self, x: Expr, start: int = _FROM) -> None:
        b = x.builder
        self.x = x = x.cast(ir.DataType.DOUBLE)
        self.mirrored = x < 0.5
        self.z = b.where(self.mirrored, 1 - x, x)
        self.small = self.z < start
        self.low = self.z.minimum(start)
        self.large = b.where(self.small, self.z + start, self.z)
        # Without its whole part, of which only the sign would be left. Where nothing is mirrored a sine of 1 stands, so
        # that no gradient of what is not taken is infinite.
        angle = b.where(self.mirrored, x - _of(std.Round, x), 0.5) * math.pi
        self.sine, self.cosine = _of(std.Sin, angle), _of(std.Cos, angle)

    def series(self, *factors: float) -> Expr:
        """The sum of factors[k] / large^(2k)."""
        square = 1 / (self.large * self.large)
        *first, last = factors
        return functools.reduce(lambda total, factor: total * square + factor, reversed(first), square.like(last))


def lgamma(x: Expr) -> Expr:
    """Log |gamma(x)|, infinite where x is, and at 0, -1, -2, ..."""
    a, b = _Argument(x), x.builder
    w = a.large
    stirling = (w - 0.5) * _of(std.Log, w) - w + 0.5 * math.log(2 * math.pi) + a.series(*_SERIES) / w
    product = functools.reduce(operator.mul, [a.low + step for step in range(_FROM)])
    result = b.where(a.small, stirling - _of(std.Log, product), stirling)
    reflected = math.log(math.pi) - _of(std.Log, _of(std.Abs, a.sine)) - result
    infinite = _of(std.IsInf, a.x)
    return b.where(infinite, math.inf, b.where(a.mirrored, reflected, result))


def digamma(x: Expr) -> Expr:
    """The derivative; no number at 0, -1, -2, ... and minus infinity."""
    a, b = _Argument(x), x.builder
    w = a.large
    factors = [factor * (2 * index + 1) for index, factor in enumerate(_SERIES)]
    series = _of(std.Log, w) - 0.5 / w - a.series(*factors) / (w * w)
    steps = functools.reduce(operator.add, [1 / (a.low + step) for step in range(_FROM)])
    result = b.where(a.small, series - steps, series)
    pole = a.sine.equals(0)
    reflected = b.where(pole, math.nan, result - math.pi * a.cosine / a.sine)
    return b.where(a.mirrored, reflected, result)


def polygamma(x: Expr, order: int) -> Expr:
    """The derivative of digamma of an order from 1 on; infinite at 0, -1, -2, ..."""
    # The series has smaller terms further out.
    start = _FROM + 2 * order
    a, b = _Argument(x, start), x.builder
    w = a.large
    # (2k + n - 1)! / (2k)! B[2k], of what lgamma's terms hold of B.
    factors = [
        factor * 2 * k * (2 * k - 1) * (math.factorial(2 * k + order - 1) / math.factorial(2 * k))
        for k, factor in enumerate(_SERIES, 1)
    ]
    first = 1 / w
    power = functools.reduce(operator.mul, [first] * order)
    half = math.factorial(order) / 2
    series = power * (first * half + math.factorial(order - 1) + a.series(*factors) / (w * w))
    terms = [functools.reduce(operator.mul, [1 / (a.low + step)] * (order + 1)) for step in range(start)]
    result = b.where(a.small, series + functools.reduce(operator.add, terms) * math.factorial(order), series)
    # The derivatives of the cotangent are polynomials of it.
    coefficients = [0.0, 1.0]
    for _ in range(order):
        slopes = [k * c for k, c in enumerate(coefficients)][1:]
        coefficients = [
            -math.pi * (low + high) for low, high in zip([*slopes, 0.0, 0.0], [0.0, 0.0, *slopes], strict=True)
        ]
    cotangent = b.where(a.sine.equals(0), math.inf, a.cosine / a.sine)
    *rest, last = coefficients
    polynomial = functools.reduce(
        lambda total, c: total * cotangent + c if c else total * cotangent, reversed(rest), cotangent.like(last)
    )
    sign = (-1) ** (order + 1)
    return b.where(a.mirrored, -result - polynomial * math.pi, result * sign)


def zeta(x: Expr, q: Expr) -> Expr:
    """The sum of (q + k)^-x over k = 0, 1, ..., the first terms one by one.

    Infinite at x = 1, and where an even x meets a term of q + k = 0. Without value below x = 1, at other such terms,
    and below q = 0 for an x that is no whole number.
    """
    b, double = x.builder, ir.DataType.DOUBLE
    # Beyond, all terms are 0, 1 or infinite.
    power, start = x.cast(double).minimum(1e4), q.cast(double)
    finite = b.where((start > _LEAST) & (start < math.inf), start, 0)
    least = b.op(std.ReduceMin, b.concat([finite.reshape(-1), b.constant([0], double)], 0), keepdims=0)
    count = _FROM + 1 - least.floor()
    steps = up_to(b, count)
    # One axis more, at the end: those of the two operands need not be known.
    minus = -power
    each = (finite.unsqueeze(-1) + steps) ** minus.unsqueeze(-1)
    # onnxruntime reduces no axis of nothing that is counted from behind.
    last = -1 if each.shape is None else len(each.shape) - 1
    end = finite + count
    squares, total, product = end * end, end / (power - 1) + 0.5, power / end
    for k, factor in enumerate(_TERMS, 1):
        total = total + product * factor
        product = product * (power + (2 * k - 1)) * (power + 2 * k) / squares
    value = b.op(std.ReduceSum, each, b.ints(last), keepdims=0) + end**minus * total
    whole = power.equals(power.floor())
    even = power.equals((power / 2).floor() * 2)
    none = (power < 1) | (start < 0) & ~whole
    none = none | ~(start > _LEAST)
    value = b.where(none, math.nan, b.where(start < math.inf, value, 0))
    infinite = even & (power > 1)
    value = b.where(whole_until_0(start), b.where(infinite, math.inf, power.like(math.nan)), value)
    return b.where(power.equals(1), math.inf, value).cast(x.dtype)


def whole_until_0(x: Expr) -> Expr:
    """Whether a number is 0, -1, -2, ... or minus infinity."""
    return ~(x > 0) & x.equals(x.floor())


def polygamma_of(order: Expr, x: Expr) -> Expr:
    """The derivatives of digamma of orders from 1 on that are known at run time only, in float64."""
    b = x.builder
    whole = (order > 0) & order.equals(order.floor())
    even = order.equals((order / 2).floor() * 2)
    size = lgamma(order + 1).exp() * zeta(order + 1, x)
    return b.where(whole, b.where(even, -size, size), math.nan)
