"""Lowering of comparisons, tests and operations on truth values."""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.dims import broadcast_shapes
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import PAIRED, Binary, RawOp
from lstm_lower.passes.rules.registry import Node, lowers, lowers_by, standard, widened


def is_finite(x: Expr) -> Expr:
    """Whether it is finite: a comparison with NaN does not hold."""
    return x.abs() < math.inf


class Less(Binary):
    """x < y, element by element."""


class LessEqual(Binary):
    """x <= y, element by element."""


class Greater(Binary):
    """x > y, element by element."""


class GreaterEqual(Binary):
    """x >= y, element by element."""


class LogicalAnd(Binary):
    """Logical AND of x and y."""


class LogicalOr(Binary):
    """Logical OR of x and y."""


class LogicalNot(RawOp):
    """Logical NOT."""


class IsNan(RawOp):
    """True where an element is NaN."""


class IsInf(RawOp):
    """True where an element is infinite."""


class IsFinite(RawOp):
    """True where an element is neither infinite nor NaN."""


lowers_by(
    {
        Less: standard(std.Less),
        LessEqual: standard(std.LessOrEqual),
        Greater: standard(std.Greater),
        GreaterEqual: standard(std.GreaterOrEqual),
        LogicalAnd: standard(std.And),
        LogicalOr: standard(std.Or),
        LogicalNot: standard(std.Not),
        IsNan: standard(std.IsNaN),
        IsInf: standard(std.IsInf),
        IsFinite: is_finite,
    }
)


class _Equality(Binary, abstract=True):
    """Whether two numbers or truth values are the same, or differ."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operands broadcast, unless that they do not is an answer too."""
        if call.attributes["incompatible_shape_error"]:
            super().verify(call)


class Equal(_Equality):
    """x = y, element by element."""


@lowers(Equal, repeatable=True)
def equal(n: Node, b: Builder) -> Expr:
    """An Equal, or false where it is known that the operands do not broadcast."""
    x, y = n.call.operands["x"].shape, n.call.operands["y"].shape
    if x is not None and y is not None and broadcast_shapes(x, y) is None:
        return b.constant(False, ir.DataType.BOOL)
    return widened(n.x).equals(widened(n.y))


class NotEqual(_Equality):
    """x != y, element by element."""


@lowers(NotEqual, repeatable=True)
def not_equal(n: Node, b: Builder) -> Expr:
    """The contrary."""
    return ~equal(n, b)


class ApproximateEqual(RawOp, x="*S", y="*S", T=PAIRED):
    """True where x and y differ by less than the tolerance."""


@lowers(ApproximateEqual, repeatable=True)
def approximate_equal(n: Node, _: Builder) -> Expr:
    """The distance compared with the tolerance."""
    return (n.x - n.y).abs() < n.tolerance
