"""Lowering of the ops that read label sequences off scores."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr, concat
from lstm_lower.ops.ordinary.decoding import CTCGreedyDecoder
from lstm_lower.passes.rules.registry import Node, lowers

_INT64 = ir.DataType.INT64


@lowers(CTCGreedyDecoder, repeatable=True)
def ctc_greedy_decoder(n: Node) -> dict[str, Expr]:
    """All steps at once; the place of a label in its row is the number of labels before it."""
    b, batch = n.builder, _size(n, "B")
    steps = b.op(std.Range, b.constant(0, _INT64), _size(n, "T").reshape(), b.constant(1, _INT64)).unsqueeze(1)
    active = steps < n.sequence_length.cast(_INT64).unsqueeze(0)
    best = b.op(std.ArgMax, n.inputs, axis=2, keepdims=0)
    blank = _size(n, "C").reshape() + n.blank_index if n.blank_index < 0 else b.constant(n.blank_index, _INT64)
    kept = active & ~best.equals(blank)
    if n.merge_repeated:
        # No class is -1, which stands before the first step.
        before = b.op(std.Pad, best, b.ints(1, 0, -1, 0), b.constant(-1, _INT64))
        kept = kept & ~best.equals(before)
    member = kept.cast(_INT64).transpose(1, 0)
    places = b.op(std.NonZero, member).transpose(1, 0)
    before = b.op(std.CumSum, member, b.constant(1, _INT64), exclusive=1)
    position = b.op(std.GatherND, before, places).unsqueeze(1)
    longest = b.op(std.ReduceMax, concat([b.ints(0), member.sum(1)], 0), keepdims=0).reshape(1)
    score = b.where(active, n.inputs.reduce(std.ReduceMax, 2, keepdims=False), 0)
    return {
        "decoded_indices": concat([places.slice(0, 1, axis=1), position], 1),
        "decoded_values": b.op(std.GatherND, best.transpose(1, 0), places),
        "decoded_shape": concat([batch, longest], 0),
        "log_probability": -score.sum(0).unsqueeze(1),
    }


def _size(n: Node, symbol: str) -> Expr:
    """A size of the node as a vector of one."""
    return n.builder.sizes([n.size(symbol)])
