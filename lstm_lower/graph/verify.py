"""The verifier: is this graph well formed, and does every composite node fit its definition?

It runs before lowering, where it turns a malformed model into one clear error, and after each pass in tests and under
`--verify-each`, where it catches a faulty pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import networkx as nx
import onnx_ir as ir

from lstm_lower import opdef, ops  # noqa: F401 (ops fills the registry)
from lstm_lower.errors import InvalidModelError, requires
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.infer import constant_of, shape_of
from lstm_lower.passes.rules.registry import REPEATABLE
from lstm_lower.passes.templates import signature


def composite_nodes(graph: ir.Graph | ir.Function) -> Iterator[tuple[ir.Node, type[opdef.OpDef]]]:
    """The nodes of a graph and its subgraphs that have a definition, with it."""
    for node in graph:
        definition = opdef.definition(node.domain, node.op_type)
        if definition is not None:
            yield node, definition
        for subgraph in subgraphs_of(node):
            yield from composite_nodes(subgraph)


def bind_node(node: ir.Node, definition: type[opdef.OpDef]) -> opdef.Call:
    """Verifies a composite node against its definition.

    Raises:
        InvalidModelError: an operand or attribute does not fit.
    """
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
            operands[name] = opdef.TensorInfo(value.dtype, shape_of(value), constant_of(value))
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


def node_label(node: ir.Node) -> str:
    """A node's name, or its first output's where it has none."""
    return node.name or (node.outputs[0].name if node.outputs else None) or "?"


def verify(model: ir.Model) -> None:
    """Verifies a whole model: names, order, cycles and every composite node.

    Raises:
        InvalidModelError: the first fault found.
    """
    fitting: set[Hashable] = set()
    for graph in [model.graph, *(function.graph for function in model.functions.values())]:
        _verify_structure(graph, set())
        for node, definition in composite_nodes(graph):
            # In a function's body an attribute may stand for the caller's, who is yet to come.
            if any(attribute.is_ref() for attribute in node.attributes.values()):
                continue
            # An unrolled network holds thousands of nodes that are alike.
            key = signature(node) if node.op_type in REPEATABLE else None
            if key is None or key not in fitting:
                bind_node(node, definition)
                fitting.add(key)


def _verify_structure(graph: ir.Graph, outer: set[ir.Value], names: set[str] | None = None) -> None:
    """Every value is defined once, before its uses, under a name of its own in all scopes around it."""
    names = set() if names is None else names
    visible = set(outer)

    def define(value: ir.Value, what: str) -> None:
        if value.name:
            if value.name in names:
                raise InvalidModelError(f"{what} '{value.name}' requires a name of its own, got one that is taken")
            names.add(value.name)
        visible.add(value)

    for value in graph.inputs:
        define(value, "graph input")
    for value in graph.initializers.values():
        if value not in visible:
            define(value, "initializer")
    for node in graph:
        for index, operand in enumerate(node.inputs):
            if operand is not None and operand not in visible:
                _raise_undefined(graph, node, index, operand)
        for subgraph in subgraphs_of(node):
            _verify_structure(subgraph, visible, set(names))
        for value in node.outputs:
            define(value, f"{node.op_type} '{node_label(node)}': output")
    for value in graph.outputs:
        if value not in visible:
            raise InvalidModelError(f"graph output '{value.name}' requires a value, got one that nothing defines")


def _raise_undefined(graph: ir.Graph, node: ir.Node, index: int, operand: ir.Value) -> None:
    label = f"{node.op_type} '{node_label(node)}'"
    producer = operand.producer()
    if producer is not None and producer.graph is graph:
        cycle = _find_cycle(graph)
        if cycle:
            raise InvalidModelError(f"{label}: the graph requires an order, got a cycle: {' -> '.join(cycle)}")
        raise InvalidModelError(f"{label}: input {index} requires a value defined before, got '{operand.name}'")
    raise InvalidModelError(
        f"{label}: input {index} requires a defined value, got '{operand.name}', which nothing defines"
    )


def _find_cycle(graph: ir.Graph) -> list[str]:
    """Names of the nodes of one cycle, or nothing."""
    flow: nx.DiGraph[ir.Node] = nx.DiGraph()
    for node in graph:
        flow.add_edges_from((producer, node) for producer in node.predecessors())
    try:
        edges = nx.find_cycle(flow)
    except nx.NetworkXNoCycle:
        return []
    return [node_label(edge[0]) for edge in edges] + [node_label(edges[0][0])]


class VerifyPass(ir.passes.InPlacePass):
    """The verifier as a pass; it changes nothing."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Verifies.

        Raises:
            InvalidModelError: the first fault found.
        """
        verify(model)
        return ir.passes.PassResult(model, modified=False)
