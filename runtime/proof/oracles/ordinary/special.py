"""Float64 oracles of special functions of two operands."""

from __future__ import annotations

import math

import numpy as np

from lstm_lower.runtime.proof.oracles.ordinary.math import digamma
from lstm_lower.runtime.proof.oracles.ordinary.tables import oracles_by

# Bernoulli's numbers B2, B4, ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)


def _zeta(x: float, q: float) -> float:
    """Term by term until q + k is large, then the integral and Euler and Maclaurin's corrections."""
    if x == 1:
        return math.inf
    if math.isnan(q) or x < 1:
        return math.nan
    if q <= 0 and q == np.floor(q):
        return math.inf if x % 2 == 0 else math.nan
    if q < 0 and x != np.floor(x):
        return math.nan
    if math.isinf(q):
        return 0.0
    count = max(math.ceil(-q), 0) + 60
    with np.errstate(all="ignore"):
        terms = [np.float64(q + k) ** -x for k in range(count)]
        end = np.float64(q + count)
        terms += [end ** (1 - x) / (x - 1), end**-x / 2]
        rising = x
        for k, number in enumerate(_BERNOULLI, 1):
            terms.append(number / math.factorial(2 * k) * rising * end ** (1 - x - 2 * k))
            rising *= (x + 2 * k - 1) * (x + 2 * k)
        return float(np.sum(terms))


def _polygamma(a: float, x: float) -> float:
    """A factorial times the zeta function."""
    if a == 0:
        return digamma(x)
    if a < 0 or a != np.floor(a):
        return math.nan
    sign = 1 if a % 2 else -1
    return sign * math.factorial(int(a)) * _zeta(a + 1, x)


oracles_by(
    {
        "Polygamma": np.vectorize(_polygamma, otypes=[np.float64]),
        "Zeta": np.vectorize(_zeta, otypes=[np.float64]),
    }
)
