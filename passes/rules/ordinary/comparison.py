"""Lowering of comparisons, tests and operations on truth values."""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.comparison import (
    ApproximateEqual,
    Equal,
    Greater,
    GreaterEqual,
    IsFinite,
    IsInf,
    IsNan,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    NotEqual,
)
from lstm_lower.passes.rules.ordinary.tables import lowers_by, standard, widened
from lstm_lower.passes.rules.registry import Node, lowers


def is_finite(x: Expr) -> Expr:
    """Whether it is finite: a comparison with NaN does not hold."""
    return x.abs() < math.inf


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


@lowers(Equal, repeatable=True)
def equal(n: Node) -> dict[str, Expr]:
    """An Equal, or false where it is known that the operands do not broadcast."""
    (info,) = n.call.outputs
    x, y = n.call.operands["x"].shape, n.call.operands["y"].shape
    if info.shape == () and (x or y):
        return {"z": n.builder.constant(False, ir.DataType.BOOL)}  # noqa: FBT003
    return {"z": widened(n.x).equals(widened(n.y))}


@lowers(NotEqual, repeatable=True)
def not_equal(n: Node) -> dict[str, Expr]:
    """The contrary."""
    return {"z": ~equal(n)["z"]}


@lowers(ApproximateEqual, repeatable=True)
def approximate_equal(n: Node) -> dict[str, Expr]:
    """The distance compared with the tolerance."""
    return {"z": (n.x - n.y).abs() < n.tolerance}
