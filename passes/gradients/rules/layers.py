"""Gradients of dropout and of dequantization. What is quantized is flat, as in PyTorch: nothing is passed through."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.rows import padded, reshape_to
from lstm_lower.passes.formulas.sizes import divided
from lstm_lower.passes.gradients.registry import Adjoint, Gradients, differentiates, stops, summed, widened

stops(std.QuantizeLinear)


@differentiates(std.Dropout)
def _dropout(op: std.Dropout, n: Adjoint) -> Gradients:
    """What was kept, with the scale it was given."""
    training = n.b.facts.uniform(op.training) if op.training is not None else 0
    if training == 0:
        return [n.dy]
    ratio = n.dy.like(0.5) if op.ratio is None else n.x(1).cast(n.dy.dtype)
    dx = n.b.where(n.output(1), n.dy / (1 - ratio), 0)
    return [dx if training else n.b.where(n.x(2), dx, n.dy)]


@differentiates(std.DequantizeLinear)
def _dequantize(op: std.DequantizeLinear, n: Adjoint) -> Gradients:
    """To the scale: what it is a scale of."""
    if not n.needs(1):
        return []
    scale = n.x(1)
    whole = n.b.op(std.Expand, scale.like(1), scale.sizes())
    steps = n.again([op.data, whole, op.zero_point])
    slope = n.dy * steps
    if n.rank(1) == 0:
        return None, n.b.op(std.ReduceSum, widened(slope), keepdims=0).cast(slope.dtype)
    rank, axis = n.rank(), op.axis
    assert axis is not None
    if op.block_size:
        return None, _of_blocks(slope, n.x(1), axis, op.block_size)
    return None, summed(slope, [i for i in range(rank) if i != axis])


def _of_blocks(slope: Expr, scale: Expr, axis: int, block: int) -> Expr:
    """Sums over the blocks of an axis, of which the last one may be shorter."""
    rank, size = len(scale.shape or ()), slope.size(axis)
    count = divided(size + block - 1, block)
    wide = padded(slope, axis, 0, count * block - size)
    sizes = [slope.size(i) for i in range(rank)]
    apart = slope.builder.sizes([*sizes[:axis], count, block, *sizes[axis + 1 :]])
    return summed(reshape_to(wide, apart), [axis + 1])
