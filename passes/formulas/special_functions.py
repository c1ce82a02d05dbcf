"""Elementary, error and gamma functions as formulas, right in relative terms for small operands, too.

Those that onnxruntime has in float32 only are in float64 here. The error functions are exact also where 1 - erf(x)
leaves no digit. The gamma functions are Stirling's series from 8 on, below it by recurrence, and by reflection below
1/2. Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.1.15, 6.1.17, 6.1.41, 6.3.5, 6.3.7, 6.3.18,
6.4.6, 6.4.7, 6.4.10, 6.4.11, 23.2.7, and 23.1.30 for the zeta function.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached, tanh
from lstm_lower.passes.formulas.sizes import up_to

# Constants of the scaled exponential linear unit (Klambauer et al., Self-Normalizing Neural Networks, 2017).
SELU_SCALE = 1.0507009873554804934193349852946
SELU_SCALE_ALPHA = 1.7580993408473768599402175208123


def sum_of_squares(x: Expr) -> Expr:
    """The sum over all elements, a scalar, even where the rank is open.

    Rows first, and then what they come to: onnxruntime adds up all elements one after another, and loses 6e-5 of the
    squares of a matrix of two million.
    """
    squares = x * x
    rows = squares if x.shape is None or len(x.shape) < 2 else squares.sum(len(x.shape) - 1)
    return x.builder.op(std.ReduceSum, rows, keepdims=0)


def log1p_of(x: Expr) -> Expr:
    """log(1 + x).

    What rounding does to u = 1 + x is undone by the factor x / (u - 1), in which u - 1 is exact. Source: Higham,
    Accuracy and Stability of Numerical Algorithms, 1.14.1, for log(1 + x) / x.
    """
    b = x.builder
    u = 1 + x
    shift = u - 1
    lost = shift.equals(0)
    # Equal where 1 + x is exact, and for an infinite x, whose factor would be no number.
    factor = b.where(shift.equals(x), x.like(1), x / b.where(lost, 1, shift))
    return b.where(lost, x, u.log() * factor)


def log1p_of_fraction(x: Expr) -> Expr:
    """log(1 + x) of 0 to 1, where what rounding takes from u = 1 + x can be added instead: (x - (u - 1)) / u.

    It takes half of the nodes of `log1p_of`.
    """
    u = x + 1
    return u.log() + (x - (u - 1)) / u


def expm1_of(x: Expr) -> Expr:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), in which nothing cancels."""
    return tanh(x * 0.5) * (x.exp() + 1)


# Of one real variable.
Formula = Callable[[Expr], Expr]


def _of(op: type[std.Standard], x: Expr) -> Expr:
    return x.builder.op(op, x)


def truncated(x: Expr) -> Expr:
    """Numbers without what is behind the point."""
    return x.builder.where(x < 0, _of(std.Ceil, x), x.floor())


def rounded(x: Expr) -> Expr:
    """The nearest whole number, halves away from zero."""
    return _of(std.Sign, x) * (x.abs() + 0.5).floor()


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
    result = _of(std.Sign, x) * log1p_of(size + size * (size / (1 + root)))
    return b.where(size < math.inf, result, x)


def acosh(x: Expr) -> Expr:
    """log(x + sqrt(x x - 1)) = log(1 + t + sqrt(t) sqrt(t + 2)) of t = x - 1."""
    rest = x - 1
    return log1p_of(rest + _of(std.Sqrt, rest) * _of(std.Sqrt, rest + 2))


def atanh(x: Expr) -> Expr:
    """log((1 + a) / (1 - a)) / 2 = log(1 + 2 a / (1 - a)) / 2 of a = |x|, with x's sign."""
    size = _of(std.Abs, x)
    return _of(std.Sign, x) * (0.5 * log1p_of(2 * size / (1 - size)))


# Coefficients of Chebyshev polynomials in 2 t - 1 for log(erfcx(x) / t), t = 2 / (2 + x), x >= 0, fitted by us: no
# relative error above 1e-14. The form is that of Press et al., Numerical Recipes, 6.2.2.
_CHEBYSHEV = (
    -0.6513268598908547,
    0.6419697923564902,
    0.01947647320418576,
    -0.009561514786808528,
    -0.0009465953444820287,
    0.0003668394978527391,
    4.252332480708388e-05,
    -2.027857811259817e-05,
    -1.624290004171447e-06,
    1.303655835168244e-06,
    1.562644241042524e-08,
    -8.523809643466487e-08,
    6.529055022630698e-09,
    5.059342985456358e-09,
    -9.913636700637783e-10,
    -2.273656933507588e-10,
    9.646880185760507e-11,
    2.393346942271414e-12,
    -6.885428434737109e-12,
    8.939401351750337e-13,
    3.133531475799765e-13,
    -1.131149265480251e-13,
    8.33208848983016e-16,
    6.416604603120215e-15,
)
# Below it the series of erf has small terms, and above it 1 - erf is exact.
_SMALL = 0.5
_SERIES = [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(13)]


def _magnitude(x: Expr) -> Expr:
    """|x| with a slope of 1 at 0."""
    return x.builder.where(x < 0, -x, x)


def _scaled(x: Expr) -> Expr:
    """exp(x^2) erfc(x) of x >= 0."""
    least = float(np.finfo(np.float64 if x.dtype.itemsize == 8 else np.float32).eps) / 16
    terms = [c for c in _CHEBYSHEV if abs(c) > least]
    t = 2 / (x + 2)
    twice = 4 * t - 2
    # Clenshaw's recurrence.
    after, last = t.like(0), t.like(terms[-1])
    for c in reversed(terms[1:-1]):
        after, last = last, twice * last - after + c
    return t * ((twice * last) * 0.5 - after + terms[0]).exp()


def _series(x: Expr) -> Expr:
    """erf(x) of small x."""
    square = x * x
    return x * functools.reduce(lambda total, c: total * square + c, reversed(_SERIES[:-1]), square.like(_SERIES[-1]))


def erfcx(x: Expr) -> Expr:
    """exp(x^2) erfc(x)."""
    negative = x.minimum(0)
    above = _scaled(_magnitude(x))
    return x.builder.where(x < 0, 2 * (negative * negative).exp() - above, above)


def erfc(x: Expr) -> Expr:
    """1 - erf(x)."""
    size = _magnitude(x)
    above = (-(size * size)).exp() * _scaled(size)
    return x.builder.where(x < 0, 2 - above, above)


def erf(x: Expr) -> Expr:
    """The error function."""
    b = x.builder
    small = x.abs() < _SMALL
    return b.where(small, _series(b.where(small, x, 0)), 1 - erfc(x))


def ndtr(x: Expr) -> Expr:
    """The probability that a normally distributed number is less than x."""
    return erfc(x * -math.sqrt(0.5)) * 0.5


def gelu(x: Expr) -> Expr:
    """The operand times that (Hendrycks and Gimpel, 2016)."""
    return x * ndtr(x)


def log_ndtr(x: Expr) -> Expr:
    """Its logarithm."""
    b = x.builder
    low = x < -1
    below, above = b.where(low, x, -1), b.where(low, 0, x)
    tail = (_scaled(below * -math.sqrt(0.5)) * 0.5).log() - below * below * 0.5
    return b.where(low, tail, log1p_of(erfc(above * math.sqrt(0.5)) * -0.5))


def _inverse(x: Expr, rest: Expr) -> Expr:
    """The y whose erf is x; rest is 1 - |x|.

    Three steps of Halley's method from an approximation of three digits; source: Winitzki, A handy approximation for
    the error function and its inverse, 2008.
    """
    b = x.builder
    inside = rest > 0
    small = x.abs() < _SMALL
    near = b.where(small, x, 0.25)
    far = b.where(inside & ~small, rest, 0.25)
    c = b.where(small, 1 - near.abs(), far)
    logarithm = (c * (2 - c)).log()
    half = 2 / (math.pi * 0.147) + logarithm * 0.5
    start = detached(((half * half - logarithm / 0.147).sqrt() - half).sqrt())
    slope = math.sqrt(math.pi) / 2

    def refined(y: Expr, off: Callable[[Expr], Expr]) -> Expr:
        for _ in range(3):
            step = off(y)
            y = y - step / (1 + y * step)
        return y

    low = refined(b.where(near < 0, -start, start), lambda y: (_series(y) - near) * (y * y).exp() * slope)
    high = refined(start, lambda y: (far * (y * y).exp() - _scaled(_magnitude(y))) * slope)
    high = b.where(inside, high, b.where(rest.equals(0), math.inf, x.like(math.nan)))
    return b.where(small, low, b.where(x < 0, -high, high))


def erfinv(x: Expr) -> Expr:
    """The y whose erf is x: infinite at both ends, and no number beyond."""
    return _inverse(x, 1 - x.abs())


def ndtri(p: Expr) -> Expr:
    """The y whose ndtr is p."""
    b = p.builder
    return _inverse(p * 2 - 1, b.where(p < 0.5, p, 1 - p) * 2) * math.sqrt(2)


# B[2k] / (2k (2k - 1)), of Bernoulli's numbers, for k = 1, 2, ...: the series of lgamma. That of digamma has another
# factor of 2k - 1.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)

# B[2k] / (2k)!, for k = 1, 2, ...: the terms of Euler and Maclaurin's formula.
_TERMS = [
    factor * 2 * k * (2 * k - 1) / math.factorial(2 * k) for k, factor in enumerate((*_STIRLING, 43867 / 244188), 1)
]

# Where the series is as exact as float64 is.
_FROM = 8

# The highest order of polygamma that has a formula of its own.
HIGHEST = 10

# How far below 0 the zeta function is summed up.
_LEAST = -1000


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
    stirling = (w - 0.5) * _of(std.Log, w) - w + 0.5 * math.log(2 * math.pi) + a.series(*_STIRLING) / w
    product = functools.reduce(operator.mul, [a.low + step for step in range(_FROM)])
    result = b.where(a.small, stirling - _of(std.Log, product), stirling)
    reflected = math.log(math.pi) - _of(std.Log, _of(std.Abs, a.sine)) - result
    infinite = _of(std.IsInf, a.x)
    return b.where(infinite, math.inf, b.where(a.mirrored, reflected, result))


def digamma(x: Expr) -> Expr:
    """The derivative; no number at 0, -1, -2, ... and minus infinity."""
    a, b = _Argument(x), x.builder
    w = a.large
    factors = [factor * (2 * index + 1) for index, factor in enumerate(_STIRLING)]
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
        for k, factor in enumerate(_STIRLING, 1)
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
