"""How large the terms are that a number is the sum of: what it is rounded by, however small their sum may be."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.copies import copy_model


def magnitudes_summed(model: ir.Model) -> ir.Model:
    """A copy of a model whose floating outputs are sums of the magnitudes of their terms."""
    copy = copy_model(model)
    emitter = Builder(Workspace.of(copy), copy.graph)
    for place, value in enumerate(copy.graph.outputs):
        if value.dtype is not None and value.dtype.is_floating_point():
            copy.graph.outputs[place] = _magnitude(emitter, value)
    return copy


def _magnitude(emitter: Builder, value: ir.Value | None) -> ir.Value:
    assert value is not None
    node, facts = value.producer(), emitter.facts
    view = facts.view(node)
    if node is not None and view is not None:
        first, *rest = [*node.inputs, None]
        if isinstance(view, std.Mul) and facts.constant(first) is not None:
            first, rest = rest[0], [first]
        if isinstance(view, (std.Add, std.Sub)):
            return emitter.op(std.Add, _magnitude(emitter, first), _magnitude(emitter, rest[0]))
        if isinstance(view, std.Neg):
            return _magnitude(emitter, first)
        if isinstance(view, std.Div) or (isinstance(view, std.Mul) and facts.constant(rest[0]) is not None):
            return emitter.op(type(view), _magnitude(emitter, first), emitter.op(std.Abs, rest[0]))
        if view.linear == (0,):
            return emitter.repeat(node, [_magnitude(emitter, first), *node.inputs[1:]])[0]
    return emitter.op(std.Abs, value)
