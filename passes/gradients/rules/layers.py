"""Gradients of dropout and of dequantization. What is quantized is flat, as in PyTorch: nothing is passed through."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.rows import padded, reshape_to
from lstm_lower.passes.formulas.sizes import divided
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    again,
    demanded_output,
    differentiates,
    stops,
    summed,
    widened,
)

stops(std.QuantizeLinear)


@differentiates(std.Dropout)
def _dropout(op: std.Dropout, b: Builder, dys: Cotangents) -> Gradients:
    """What was kept, with the scale it was given."""
    training = b.facts.uniform(op.training) if op.training is not None else 0
    if training == 0:
        return dys[0]
    ratio = dys[0].like(0.5) if op.ratio is None else b.operand(op, 1).cast(dys[0].dtype)
    dx = b.where(demanded_output(op, b, 1), dys[0] / (1 - ratio), 0)
    return dx if training else b.where(b.operand(op, 2), dx, dys[0])


@differentiates(std.DequantizeLinear)
def _dequantize(op: std.DequantizeLinear, b: Builder, dys: Cotangents) -> Gradients:
    """To the scale: what it is a scale of."""
    if not dys.needs(1):
        return []
    scale = b.operand(op, 1)
    whole = b.op(std.Expand, scale.like(1), scale.sizes())
    steps = again(op, b, [op.data, whole, op.zero_point])
    slope = dys[0] * steps
    if op.known_rank(1) == 0:
        return None, b.op(std.ReduceSum, widened(slope), keepdims=0).cast(slope.dtype)
    rank, axis = op.known_rank(), op.axis
    assert axis is not None
    if op.block_size:
        return None, _of_blocks(slope, b.operand(op, 1), axis, op.block_size)
    return None, summed(slope, [i for i in range(rank) if i != axis])


def _of_blocks(slope: Expr, scale: Expr, axis: int, block: int) -> Expr:
    """Sums over the blocks of an axis, of which the last one may be shorter."""
    rank, size = len(scale.shape or ()), slope.size(axis)
    count = divided(size + block - 1, block)
    wide = padded(slope, axis, 0, count * block - size)
    sizes = [slope.size(i) for i in range(rank)]
    apart = slope.builder.sizes([*sizes[:axis], count, block, *sizes[axis + 1 :]])
    return summed(reshape_to(wide, apart), [axis + 1])
