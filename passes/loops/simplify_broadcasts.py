"""Simplification of broadcasting: elementwise operators repeat their operands themselves; no node needs to."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.values import broadcast


def narrowed(op: std.Elementwise, e: Builder) -> ir.Value | None:
    """An operator on what one of its operands repeats, in the place of the operator on that operand.

    Where the other operands have the result's shape anyway, nothing is repeated; where all are repeated alike, or are
    scalars, the result is repeated instead of the operand. Zeros and ones made to a shape count as repeated scalars.
    """
    # PRelu repeats its slope only.
    if isinstance(op, std.PRelu | std.Identity):
        return None
    facts, shape = op.facts, op.facts.shape(op.output)
    # What else a function of one operand reads are options.
    operands = op.inputs[:1] if isinstance(op, std.Unary) else op.inputs
    for wide in operands:
        maker = facts.maker(wide)
        if isinstance(maker, std.Expand):
            narrow = facts.shape(maker.data)
        elif isinstance(maker, std.ConstantOfShape) and facts.rank(wide):
            narrow = ()
        else:
            continue
        reached = broadcast(*(narrow if x is wide else facts.shape(x) for x in operands))
        if reached is None or narrow == facts.shape(wide):
            continue
        if reached == shape:
            return _again(op, wide, maker, e)
        if isinstance(maker, std.Expand) and reached == narrow and facts.same_shape(wide, op.output):
            result = _again(op, wide, maker, e)
            return None if result is None else e.op(std.Expand, result, maker.target)
    return None


def _again(
    op: std.Elementwise, wide: ir.Value | None, maker: std.Expand | std.ConstantOfShape, e: Builder
) -> ir.Value | None:
    """The operator on what is repeated."""
    if isinstance(maker, std.Expand):
        narrow: ir.Value | None = maker.data
    else:
        number, dtype = op.facts.uniform(wide), op.facts.dtype(wide)
        narrow = None if number is None or dtype is None else e.constant(number, dtype).value
    if narrow is None:
        return None
    return e.again(op.node, [narrow if x is wide else x for x in op.node.inputs]).outputs[0]
