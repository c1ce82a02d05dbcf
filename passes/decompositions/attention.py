"""Attention by onnx's own function, but for rows of which all is masked."""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import Workspace
from lstm_lower.graph.expressions import Builder, Expr
from lstm_lower.graph.form import node_label
from lstm_lower.passes.decompositions.registry import decomposes
from lstm_lower.passes.opset.functions import expanded


@decomposes(std.Attention)
def attention(view: std.Attention, b: Builder) -> list[Expr | None]:
    """The function puts zeros for the softmax of a masked row, which is NaN, and so would be its gradient."""
    results = expanded(view.node, b.opset, b)
    if results is None:
        text = requires(view.op_type, node_label(view.node), "the operands", "known dtypes", "unknown ones")
        raise UnsupportedOpError(text)
    safe = {node.outputs[0]: _without_nan(node, b.emitter.space) for node in list(b.nodes) if std.Softmax.matches(node)}
    return [safe.get(result.value, result) if result is not None else None for result in results]


def _without_nan(node: ir.Node, space: Workspace) -> Expr:
    """A Softmax with zeros for rows of -inf, which stands for the one there is."""
    b = Builder.before(node, space)
    assert node.inputs[0] is not None
    x = b.wrap(node.inputs[0])
    masked = b.op(std.Equal, x.reduce(std.ReduceMax, [-1]), x.like(-math.inf))
    y = b.where(masked, 0, b.op(std.Softmax, b.where(masked, 0, x), axis=-1))
    b.emitter.replace(node.outputs[0], y.value)
    detach(node)
    return y
