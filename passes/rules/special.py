"""Lowering of special functions of two operands."""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.ops.raw import Binary
from lstm_lower.passes.formulas import gamma
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.tables import lowers_by

_DOUBLE = ir.DataType.DOUBLE


class Zeta(Binary):
    """Hurwitz's zeta function, the sum of (q + k)^-x over k = 0, 1, ...; NaN for q below -1000."""


lowers_by({Zeta: gamma.zeta})


class Polygamma(Binary):
    """The derivative of order a of digamma at x: a whole number of at least 0, NaN for others."""


@lowers(Polygamma)
def polygamma(n: Node, b: Builder) -> Expr:
    """A formula of its own for a small order that is known, else the zeta function; at poles what TensorFlow has."""
    order, x, known = n.a.cast(_DOUBLE), n.x.cast(_DOUBLE), n.constant("a")
    if known is not None and known.size == 1 and known.reshape(-1)[0] in range(gamma.HIGHEST + 1):
        first = int(known.reshape(-1)[0])
        # The order may have more axes than the operand.
        value = (gamma.polygamma(x, first) if first else gamma.digamma(x)) + b.zeros_like(order)
    else:
        value = b.where(order.equals(0), gamma.digamma(x), gamma.polygamma_of(order, x))
    odd = (order > 0) & order.equals((order / 2).floor() * 2 + 1)
    at_pole = b.where(odd, math.inf, order.like(math.nan))
    return b.where(gamma.whole_until_0(x), at_pole, value).cast(n.x.dtype)
