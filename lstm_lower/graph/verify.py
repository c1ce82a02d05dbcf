"""The verifier: is this graph well formed, and does every composite node fit its definition?

It runs before lowering, where it turns a malformed model into one clear error, and after each pass in tests and under
`--verify-each`, where it catches a faulty pass.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import bind_node, composite_nodes
from lstm_lower.graph.declared import open_negative_sizes, open_states, verify_declared
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.structure import verify_structure


def verify(model: ir.Model) -> Facts:
    """Verifies a whole model: its structure, every composite node against its definition, declared types against facts.

    Returns:
        What was found out of the model's values.

    Raises:
        InvalidModelError: the first fault found.
    """
    verify_structure(model)
    facts = Facts.of(model)
    verify_types(model, facts)
    return facts


def verify_types(model: ir.Model, facts: Facts, *, correcting: bool = False) -> bool:
    """Verifies every composite node of a well-formed model against its definition, and declared types against facts.

    Args:
        model: the model.
        facts: what is known of its values.
        correcting: whether wrong declared shapes of inner values are put right instead, see `verify_declared`, and
            negative sizes and those of states that begin otherwise (`open_states`) are left open.

    Returns:
        Whether there were any.

    Raises:
        InvalidModelError: the first fault found.
    """
    opened = correcting and open_negative_sizes(model)
    if correcting and facts.opset >= std.OLDEST_VIEWED:
        opened |= open_states(model.graph, facts)
    for graph in [model.graph, *(function.graph for function in model.functions.values())]:
        for node, definition in composite_nodes(graph):
            # In a function's body an attribute may stand for the caller's, who is yet to come.
            if not any(attribute.is_ref() for attribute in node.attributes.values()):
                bind_node(node, definition, facts)
    if facts.opset >= std.OLDEST_VIEWED:
        return verify_declared(model.graph, facts, correcting=correcting) or opened
    return opened
