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
def _div(op: std.Div, e: Builder) -> ir.Value | None:
    a, b = op.inputs
    if (inverse := _inverse(op, e)) is not None:
        return inverse
    return fits(a, op) if op.facts.uniform(b) == 1.0 else None


def _inverse(op: std.Div, e: Builder) -> ir.Value | None:
    """1 / x, of which onnxruntime makes y / x where it is 1 / x * y: others are integers then, and axes get lost."""
    (one, x), dtype = op.inputs, op.dtype()
    axes, rank = op.rank(0), op.rank(1)
    if op.facts.uniform(one) != 1.0 or op.facts.elements(one) != 1 or x is None or axes is None or rank is None:
        return None
    integers = dtype in _INTEGERS
    if not integers and (axes <= rank or dtype is None or not dtype.is_floating_point()):
        return None
    wide = e.unsqueeze(x, *range(axes - rank)) if axes > rank else x
    if not integers:
        return e.op(std.Reciprocal, wide)
    return e.op(std.Where, e.op(std.Equal, e.op(std.Abs, wide), one), wide, e.op(std.Sub, one, one))


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


@simplifies(std.MatMul)
def _matmul(op: std.MatMul, e: Builder) -> ir.Value | None:
    """A computed matrix times a vector is a product of matrices; halves are transposed behind the product.

    onnxruntime fuses a Transpose into the product, from behind other nodes too, and reads the matrix wrongly where the
    right operand is a vector. A transposed matrix is the vector times the matrix. Of halves times a constant matrix it
    dies, and so it does where a Cast stands between a Transpose of other axes than the last two and the product. A
    matrix times what is transposed so is computed in float32, as on CPUs anyway.
    """
    widened = [_cast_first(value, op, e) for value in op.inputs]
    if tuple(widened) != op.inputs:
        return e.op(std.MatMul, *widened)
    # One operand may come from a function, of whose results nothing is known.
    halves = ir.DataType.FLOAT16 in map(op.facts.dtype, op.inputs)
    inner = op.facts.maker(op.a)
    perm = inner.perm if isinstance(inner, std.Transpose) else None
    if halves and inner is not None and perm and op.rank(1) == 2 and perm[-1] == len(perm) - 1:
        return e.op(std.Transpose, e.op(std.MatMul, inner.inputs[0], op.b), perm=list(perm))
    if halves and any(_moves_batch(op.facts.maker(value)) for value in op.inputs):
        wide = (e.op(std.Cast, value, to=int(ir.DataType.FLOAT)) for value in op.inputs)
        return e.op(std.Cast, e.op(std.MatMul, *wide), to=int(ir.DataType.FLOAT16))
    if op.rank(1) != 1 or op.rank(0) == 1 or inner is None or isinstance(inner, std.Constant) or _counts(op):
        return None
    if perm is not None and len(perm) >= 2 and perm == (*range(len(perm) - 2), len(perm) - 1, len(perm) - 2):
        return e.op(std.MatMul, op.b, inner.inputs[0])
    return e.squeeze(e.op(std.MatMul, op.a, e.unsqueeze(op.b, 1)), -1)


def _counts(op: std.MatMul) -> bool:
    """Whether a product is one of integers, which nothing is fused into."""
    dtype = op.dtype()
    return dtype is not None and dtype.is_integer()


def _cast_first(value: ir.Value | None, op: std.MatMul, e: Builder) -> ir.Value | None:
    """A cast transposition as the transposition of what is cast; other values as they are."""
    cast, dtype = op.facts.maker(value), op.facts.dtype(value)
    moved = op.facts.maker(cast.inputs[0]) if isinstance(cast, std.Cast | std.CastLike) else None
    if dtype is None or not isinstance(moved, std.Transpose) or not _moves_batch(moved):
        return value
    return e.op(std.Transpose, e.op(std.Cast, moved.data, to=int(dtype)), perm=list(moved.perm or ()))


def _moves_batch(op: std.Standard | None) -> bool:
    """Whether a node transposes other axes than the last two."""
    return isinstance(op, std.Transpose) and op.perm is not None and op.perm[:-2] != tuple(range(len(op.perm) - 2))
