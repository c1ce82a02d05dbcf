"""Simplification of arithmetic: zeros and ones vanish, signs cancel."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.passes.decompositions.arrays import total
from lstm_lower.passes.loops.views.pads import is_padded, joined_pads
from lstm_lower.passes.loops.views.simplifies import fits, simplifies
from lstm_lower.passes.patterns import Pattern, Side, Variable, applied

_INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.INT64})


X, Z = Variable("x"), Variable("z")
_negated, _smaller, _larger = applied(std.Neg), applied(std.Min), applied(std.Max)


def _has_sign(view: std.Standard, _: object) -> bool:
    """Numbers without one have no Neg."""
    dtype = view.dtype()
    return dtype is not None and dtype.is_signed()


def _is_finite(view: std.Standard, bound: Mapping[Side, ir.Value]) -> bool:
    return view.facts.finite(bound[X])


def _of_integers(view: std.Standard, _: object) -> bool:
    return view.dtype() in _INTEGERS


PATTERNS = (
    Pattern(0 + X, X, "o = Constant <value = float {0.0}> () y = Add(x, o)"),
    Pattern(X - 0, X, "o = Constant <value = float[2,1] {0.0, 0.0}> () y = Sub(x, o)"),
    Pattern(0 - X, -X, "o = Constant <value = float {0.0}> () y = Sub(o, x)", _has_sign),
    Pattern(1 * X, X, "o = Constant <value = float {1.0}> () y = Mul(o, x)"),
    Pattern(-1 * X, -X, "o = Constant <value = float {-1.0}> () y = Mul(x, o)"),
    Pattern(0 * X, 0, "o = Constant <value = int64[2] {0, 0}> () y = Mul(k, o)", _is_finite),
    Pattern(X / 1, X, "o = Constant <value = float {1.0}> () y = Div(x, o)"),
    Pattern(_negated(-X), X, "n = Neg(x) y = Neg(n)"),
    Pattern(_smaller(X, X), X, "s = Shape(x) y = Min(s, s)", _of_integers),
    Pattern(_larger(X, X), X, "s = Shape(x) y = Max(s, s)", _of_integers),
    Pattern(_smaller(X, _larger(X, Z)), X, "i, j = Split(k) m = Max(j, i) y = Min(i, m)", _of_integers),
    Pattern(_larger(X, _smaller(X, Z)), X, "i, j = Split(k) m = Min(i, j) y = Max(m, i)", _of_integers),
    Pattern(_smaller(X, _smaller(X, Z)), _smaller(X, Z), "i, j = Split(k) m = Min(i, j) y = Min(j, m)", _of_integers),
    Pattern(_larger(X, _larger(X, Z)), _larger(X, Z), "i, j = Split(k) m = Max(i, j) y = Max(m, i)", _of_integers),
)

simplifies(std.Sum)(total)


@simplifies(std.Add)
def _add(op: std.Add, e: Builder) -> ir.Value | None:
    return joined_pads(e, op.node) if is_padded(op) else None


@simplifies(std.Where)
def _where(op: std.Where, _: Builder) -> ir.Value | None:
    condition = op.constant(0)
    if condition is None or condition.size == 0 or not (condition == condition.reshape(-1)[0]).all():
        return None
    return fits(op.yes if condition.reshape(-1)[0] else op.no, op)


@simplifies(std.ReduceSum, std.ReduceMean, std.ReduceMax, std.ReduceMin, std.ReduceProd)
def _reduce(op: std.Reduction, e: Builder) -> ir.Value | None:
    """A reduction over axes of size 1; of int64 onnxruntime makes doubles all the same, which are rounded."""
    shape, axes = op.shape(), op.axes
    if shape is None or axes is None or not axes or any(shape[axis] != 1 for axis in axes):
        return None
    if op.dtype() == ir.DataType.INT64 and not isinstance(op, std.ReduceMax | std.ReduceMin):
        return None
    return op.data if op.keepdims else e.squeeze(op.data, *sorted(axes))
