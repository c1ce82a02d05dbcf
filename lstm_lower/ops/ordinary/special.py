"""Definitions of special functions of two operands, which broadcast.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.opdef import operand
from lstm_lower.ops.elementwise import Binary
from lstm_lower.ops.gradients import FLOATS


class Polygamma(Binary):
    """The derivative of order a of digamma at x: a whole number of at least 0, NaN for others."""

    class Types:
        T = FLOATS[2:]

    class Inputs:
        a = operand(None)
        x = operand(None)


class Zeta(Binary):
    """Hurwitz's zeta function, the sum of (q + k)^-x over k = 0, 1, ...; NaN for q below -1000."""

    class Types:
        T = FLOATS[2:]

    class Inputs:
        x = operand(None)
        q = operand(None)
