"""Simplification of arithmetic: zeros and ones vanish, signs cancel."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.passes.loops.views.pads import is_padded, joined_pads
from lstm_lower.passes.loops.views.simplifies import fits, simplifies

_INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.INT64})


@simplifies(std.Add)
def _add(op: std.Add, e: Builder) -> ir.Value | None:
    if is_padded(op) and (joined := joined_pads(e, op.node)) is not None:
        return joined
    a, b = op.inputs
    for value, term in ((a, b), (b, a)):
        if op.facts.uniform(term) == 0.0 and fits(value, op):
            return value
    return None


@simplifies(std.Sub)
def _sub(op: std.Sub, e: Builder) -> ir.Value | None:
    a, b = op.inputs
    if op.facts.uniform(b) == 0.0 and fits(a, op):
        return a
    dtype = op.dtype()
    # Numbers without a sign have no Neg.
    negated = op.facts.uniform(a) == 0.0 and fits(b, op) and dtype is not None and dtype.is_signed()
    return e.op(std.Neg, b) if negated else None


@simplifies(std.Mul)
def _mul(op: std.Mul, e: Builder) -> ir.Value | None:
    a, b = op.inputs
    for value, factor in ((a, b), (b, a)):
        known = op.facts.uniform(factor)
        if known is None:
            continue
        if known == 1.0 and fits(value, op):
            return value
        if known == -1.0 and fits(value, op):
            return e.op(std.Neg, value)
        if known == 0.0 and fits(factor, op) and op.facts.finite(value):
            return factor
    return None


@simplifies(std.Div)
def _div(op: std.Div, _: Builder) -> ir.Value | None:
    a, b = op.inputs
    return fits(a, op) if op.facts.uniform(b) == 1.0 else None


@simplifies(std.Neg)
def _neg(op: std.Neg, _: Builder) -> ir.Value | None:
    inner = op.facts.maker(op.data)
    return inner.data if isinstance(inner, std.Neg) else None


@simplifies(std.Sum)
def _sum(op: std.Sum, e: Builder) -> ir.Value | None:
    """A sum of any number of terms, two by two."""
    result = op.inputs[0]
    for value in op.inputs[1:]:
        result = e.op(std.Add, result, value)
    return result


@simplifies(std.Where)
def _where(op: std.Where, _: Builder) -> ir.Value | None:
    condition = op.constant(0)
    if condition is None or condition.size == 0 or not (condition == condition.reshape(-1)[0]).all():
        return None
    return fits(op.yes if condition.reshape(-1)[0] else op.no, op)


@simplifies(std.Min, std.Max)
def _bound(op: std.Min | std.Max, _: Builder) -> ir.Value | None:
    """min(a, a), min(a, max(b, a)) and min(a, min(b, a)), with the same integers in other words."""
    if len(op.inputs) != 2 or op.dtype() not in _INTEGERS:
        return None
    opposite = std.Max if isinstance(op, std.Min) else std.Min
    for value, other in (op.inputs, op.inputs[::-1]):
        inner = op.facts.maker(other)
        beside = inner.inputs if isinstance(inner, opposite) else (other,)
        if any(_same_number(op, value, x) for x in beside) and fits(value, op):
            return value
        if isinstance(inner, type(op)) and any(_same_number(op, value, x) for x in inner.inputs) and fits(other, op):
            return other
    return None


def _same_number(op: std.Standard, a: ir.Value | None, b: ir.Value | None) -> bool:
    entries = op.facts.entries(a)
    return a is b or (entries is not None and len(entries) == 1 and entries == op.facts.entries(b))


@simplifies(std.ReduceSum, std.ReduceMean, std.ReduceMax, std.ReduceMin, std.ReduceProd)
def _reduce(op: std.Reduction, e: Builder) -> ir.Value | None:
    """A reduction over axes of size 1; of int64 onnxruntime makes doubles all the same, which are rounded."""
    shape, axes = op.shape(), op.axes
    if shape is None or axes is None or not axes or any(shape[axis] != 1 for axis in axes):
        return None
    if op.dtype() == ir.DataType.INT64 and not isinstance(op, std.ReduceMax | std.ReduceMin):
        return None
    return op.data if op.keepdims else e.squeeze(op.data, *sorted(axes))
