"""Definitions of special functions of two operands, which broadcast.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.ops.elementwise import Binary


class Polygamma(Binary):
    """The derivative of order a of digamma at x: a whole number of at least 0, NaN for others."""


class Zeta(Binary):
    """Hurwitz's zeta function, the sum of (q + k)^-x over k = 0, 1, ...; NaN for q below -1000."""
