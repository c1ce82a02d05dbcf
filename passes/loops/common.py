"""Equal nodes merge: nodes of one scope, nodes of a loop's body with nodes outside, and Scans with equal bodies.

Precondition: nodes in topological order. Two nodes are equal when operator, operands and attributes are; subgraphs are
compared with their own values numbered by position and captured ones by identity. Nodes with random results are never
equal.

Postcondition: no two equal nodes where the first is visible to the second. Takes time linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.passes.loops.analysis import CONTROL_FLOW, is_pure
from lstm_lower.passes.loops.base import Context, LoopPass
from lstm_lower.passes.loops.edit import detach, subgraphs_of, substitute
from lstm_lower.passes.loops.scan import Loop

COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal"})
# Larger constants are told apart by identity: comparing them costs more than sharing them saves.
LARGEST_CONSTANT = 1 << 16


class Common(LoopPass):
    """Common subexpression elimination over all scopes."""

    name = "common"

    def run(self, model: ir.Model) -> bool:
        """Merges equal nodes of the whole model."""
        return merge_equal(model.graph, self.context)

    def rewrite(self, loop: Loop) -> bool:
        """Merges equal nodes of one loop's body."""
        return merge_equal(loop.body, self.context)


def merge_equal(graph: ir.Graph, context: Context) -> bool:
    """Merges equal nodes of a graph and its subgraphs; whether there were any."""
    return _merge(graph, context, [])


def _merge(graph: ir.Graph, context: Context, outer: list[dict[Hashable, ir.Node]]) -> bool:
    seen: dict[Hashable, ir.Node] = {}
    scopes = [*outer, seen]
    modified = False
    for node in graph:
        if node.op_type in CONTROL_FLOW:
            for subgraph in subgraphs_of(node):
                modified |= _merge(subgraph, context, scopes)
        if not is_pure(node):
            continue
        key = _key(node, {})
        if key is None:
            continue
        twin = seen.get(key) if len(scopes) == 1 else next((scope[key] for scope in scopes if key in scope), None)
        if twin is None:
            seen[key] = node
            continue
        if _only_makes_result(node):
            continue
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            if new.shape is None:
                new.shape = old.shape
            substitute(old, new, context.names)
        detach(node)
        modified = True
    return modified


def _only_makes_result(node: ir.Node) -> bool:
    """Whether a node is there only because a graph's output needs a maker of its own in that graph."""
    return node.op_type in ("Identity", "Constant") and any(output.is_graph_output() for output in node.outputs)


def _key(node: ir.Node, numbering: dict[ir.Value, int]) -> Hashable | None:
    operands = [numbering.get(x, id(x)) if x is not None else 0 for x in node.inputs]
    if node.op_type in COMMUTATIVE:
        operands.sort()
    attributes: tuple[Hashable, ...] = ()
    if node.attributes:
        attributes = tuple((name, _attribute_key(node.attributes[name], numbering)) for name in sorted(node.attributes))
    return (node.domain, node.op_type, node.overload, tuple(operands), attributes, len(node.outputs))


def _attribute_key(attribute: ir.Attr, numbering: dict[ir.Value, int]) -> Hashable:
    if attribute.is_ref():
        return ("ref", attribute.ref_attr_name)
    value: Any = attribute.value
    if attribute.type == ir.AttributeType.GRAPH:
        return graph_key(value, numbering)
    if attribute.type == ir.AttributeType.TENSOR:
        if value.size > LARGEST_CONSTANT or value.dtype == ir.DataType.STRING:
            return id(value)
        array = np.asarray(value.numpy())
        return (str(value.dtype), array.shape, array.tobytes())
    if isinstance(value, (int, float, str, bytes)):
        return (attribute.type.name, repr(value))
    if isinstance(value, (tuple, list)) and all(isinstance(item, (int, float, str, bytes)) for item in value):
        return (attribute.type.name, repr(tuple(value)))
    return id(value)


def graph_key(graph: ir.Graph, outer: dict[ir.Value, int] | None = None) -> Hashable:
    """A key that equal subgraphs share: own values by position, captured ones by identity."""
    numbering = dict(outer or {})
    # Negative numbers, so that they never meet the identity of a captured value.
    for value in graph.inputs:
        numbering[value] = -len(numbering) - 1
    nodes: list[Hashable] = []
    for value in graph.initializers.values():
        numbering[value] = -len(numbering) - 1
        nodes.append(id(value.const_value))
    for node in graph:
        nodes.append(_key(node, numbering))
        for output in node.outputs:
            numbering[output] = -len(numbering) - 1
    results = tuple(numbering.get(value, id(value)) for value in graph.outputs)
    return (len(graph.inputs), tuple(nodes), results)
