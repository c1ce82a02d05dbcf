"""The verifier: is this graph well formed, and does every composite node fit its definition?

It runs before lowering, where it turns a malformed model into one clear error, and after each pass in tests and under
`--verify-each`, where it catches a faulty pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import onnx_ir as ir

from lstm_lower import opdef, ops  # noqa: F401 (ops fills the registry)
from lstm_lower.errors import InvalidModelError, requires
from lstm_lower.graph.declared import verify_declared
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.structure import verify_structure
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.rules.registry import REPEATABLE
from lstm_lower.passes.templates import signature

__all__ = ["bind_node", "composite_nodes", "node_label", "verify"]


def composite_nodes(graph: ir.Graph | ir.Function) -> Iterator[tuple[ir.Node, type[opdef.OpDef]]]:
    """The nodes of a graph and its subgraphs that have a definition, with it."""
    for node in all_nodes(graph):
        definition = opdef.definition(node.domain, node.op_type)
        if definition is not None:
            yield node, definition


def bind_node(node: ir.Node, definition: type[opdef.OpDef], facts: Facts | None = None) -> opdef.Call:
    """Verifies a composite node against its definition.

    Raises:
        InvalidModelError: an operand or attribute does not fit.
    """
    facts = Facts(0) if facts is None else facts
    label = node_label(node)
    op = definition.op_type
    count = len(node.inputs)
    names = definition.operand_names(
        count, {name: attribute.value for name, attribute in node.attributes.items() if not attribute.is_ref()}
    )
    if count > len(names):
        raise InvalidModelError(requires(op, label, "the node", f"at most {len(names)} inputs", count))
    outputs = definition.outputs
    if len(node.outputs) > len(outputs) and not (outputs and outputs[-1].variadic):
        raise InvalidModelError(requires(op, label, "the node", f"at most {len(outputs)} outputs", len(node.outputs)))
    operands: dict[str, opdef.TensorInfo] = {}
    for name, value in zip(names, node.inputs, strict=False):
        if value is not None:
            operands[name] = opdef.TensorInfo(facts.dtype(value), facts.shape(value), facts.constant(value))
    attributes: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            raise InvalidModelError(
                requires(
                    op,
                    label,
                    f"attribute {name}",
                    "a value",
                    f"a reference to attribute {attribute.ref_attr_name}",
                )
            )
        attributes[name] = attribute.value
    return definition.bind(label, operands, attributes)


def verify(model: ir.Model) -> None:
    """Verifies a whole model: its structure, every composite node against its definition, declared types against facts.

    Raises:
        InvalidModelError: the first fault found.
    """
    verify_structure(model)
    fitting: set[Hashable] = set()
    facts = Facts.of(model)
    for graph in [model.graph, *(function.graph for function in model.functions.values())]:
        for node, definition in composite_nodes(graph):
            # In a function's body an attribute may stand for the caller's, who is yet to come.
            if any(attribute.is_ref() for attribute in node.attributes.values()):
                continue
            # An unrolled network holds thousands of nodes that are alike.
            key = signature(node) if node.op_type in REPEATABLE else None
            if key is None or key not in fitting:
                bind_node(node, definition, facts)
                fitting.add(key)
    verify_declared(model.graph, facts)
