"""The error function and its kin, exact also where 1 - erf(x) leaves no digit, and in float64."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.formulas.elementary import log1p_of

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
