"""Indices and class numbers that fail at run time where they are out of range, in every runtime.

ONNX counts negative indices from the end of an axis, and onnxruntime's kernels for processors refuse what lies outside
-size .. size-1. Where the source's own operator takes none that is negative, as lookups of embeddings and classes of
losses do, a negative one is sent beyond the end of every axis, so that the operator that reads it refuses it.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.sizes import Size, up_to

# Behind the end of every axis, in int32 too.
BEYOND = 2**31 - 1

# Operators whose integers count something, or are places of elements.
_COUNTING = (std.Arg, std.NonZero, std.Shape, std.Size)
# A result of these is negative only where an operand is.
_KEEPING = (std.Concat, std.Add, std.Mul, std.Div, std.Min)
_KEEPING_FIRST = (std.Moving, std.Identity, std.ReduceSum, std.ReduceMax, std.ReduceMin, std.ReduceProd, std.CumSum)


def from_front(indices: Expr, *, but: Expr | None = None) -> Expr:
    """Indices of which Gather, Scatter and their like refuse the negative ones; nothing is emitted where none can be.

    Args:
        indices: int32 or int64, of any shape.
        but: where a negative one may stay, bool of their shape; `None` for nowhere.
    """
    if indices.dtype.is_integer() and not indices.dtype.is_signed():
        return indices
    if is_never_negative(indices.value, indices.builder.facts):
        return indices
    refused = indices < 0
    if but is not None:
        refused = refused & ~but
    return indices.builder.where(refused, BEYOND, indices)


def within(indices: Expr, size: Size) -> Expr:
    """Indices along an axis, counted from its front, for what does not refuse those beyond its end by itself.

    Args:
        indices: int32 or int64, of any shape; negative ones count from the end, after `from_front` they are refused.
        size: that of the axis.
    """
    return up_to(indices.builder, size).take(indices).cast(indices.dtype)


def below(indices: Expr, size: Expr) -> Expr:
    """Indices of which those of `size` [1] and more are behind every end, for a table of more rows than that."""
    return indices.builder.where(indices < size, indices, BEYOND)


def is_never_negative(indices: ir.Value, facts: std.Knowledge) -> bool:
    """Whether it is certain that no element of a tensor of integers is below zero, or that the run fails before."""
    waiting: list[ir.Value | None] = [indices]
    seen: set[ir.Value] = set()
    while waiting:
        current = waiting.pop()
        if current is None:
            return False
        if current in seen:
            continue
        seen.add(current)
        array, view = facts.constant(current), facts.maker(current)
        if array is not None:
            if not (array >= 0).all():
                return False
            continue
        match view:
            case std.TopK() | std.Unique():
                if current is view.node.outputs[0]:
                    return False
            case std.Range():
                waiting += [view.start, view.delta]
            case std.Where():
                # `from_front` itself among others.
                test = facts.maker(view.condition)
                sent = isinstance(test, std.Less) and test.inputs[0] is view.no and facts.uniform(test.inputs[1]) == 0.0
                waiting += [view.yes] if sent else [view.yes, view.no]
            case std.Max():
                if not any((least := facts.uniform(x)) is not None and least >= 0 for x in view.inputs):
                    return False
            case std.Mod():
                divisor = facts.uniform(view.inputs[1])
                if view.fmod or divisor is None or divisor <= 0:
                    return False
            case std.Cast() | std.CastLike():
                before, after = facts.dtype(view.inputs[0]), facts.dtype(current)
                known = facts.constant(view.inputs[0]) is not None
                if before is None or after is None or not (known or _holds(after, before)):
                    return False
                if before.is_signed():
                    waiting.append(view.inputs[0])
            case _ if isinstance(view, _COUNTING):
                pass
            case _ if isinstance(view, _KEEPING_FIRST):
                waiting.append(view.inputs[0])
            case _ if isinstance(view, _KEEPING):
                waiting += view.inputs
            case _:
                return False
    return True


def _holds(after: ir.DataType, before: ir.DataType) -> bool:
    """Whether a dtype holds all numbers of one that counts; else large ones may become negative."""
    return not before.is_floating_point() and (after.bitwidth, before.is_signed()) >= (before.bitwidth, True)


def uncast(x: Expr) -> ir.Value:
    """The value that an expression is in whatever dtype: what stands before casts and copies."""
    facts, value = x.builder.facts, x.value
    while isinstance(maker := facts.maker(value), std.Cast | std.Identity):
        value = maker.data
    return value
