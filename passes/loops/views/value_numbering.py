"""Keys that equal nodes and equal subgraphs share."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std

# Larger constants are told apart by identity: comparing them costs more than sharing them saves.
LARGEST_CONSTANT = 1 << 16


def node_key(node: ir.Node, numbering: dict[ir.Value, int]) -> Hashable:
    """A key that equal nodes share.

    Args:
        node: a node.
        numbering: negative numbers of values to compare by number, or whose identity they have; others have their own.
    """
    operands = [*map(id, node.inputs)]
    if numbering:
        operands = [numbering.get(x, key) if x else key for x, key in zip(node.inputs, operands, strict=True)]
    if len(operands) == 2 and node.domain == "" and std.VIEWS.get(node.op_type, std.Standard).commutative:
        operands.sort()
    attributes: list[Hashable] = []
    given = node.attributes.data
    for name in sorted(given) if given else ():
        attribute = given[name]
        # Graphs may nest deep: no frame more than needed for each.
        inner = attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref()
        attributes.append((name, graph_key(attribute.as_graph(), numbering) if inner else _attribute_key(attribute)))
    # Of a value that stops gradients no other must take the place.
    stops = node.op_type == std.Identity.op_type and std.STOPPED in node.metadata_props
    # An output that is left out cannot stand for one that is read.
    outputs = tuple([not value.name for value in node.outputs])
    return (node.domain, node.op_type, node.overload, tuple(operands), tuple(attributes), outputs, stops)


def _attribute_key(attribute: ir.Attr) -> Hashable:
    if attribute.is_ref():
        return ("ref", attribute.ref_attr_name)
    value: Any = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        if value.size > LARGEST_CONSTANT or value.dtype == ir.DataType.STRING:
            return id(value)
        array = np.asarray(value.numpy())
        return (value.dtype, array.shape, array.tobytes())
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
        nodes.append(node_key(node, numbering))
        for output in node.outputs:
            numbering[output] = -len(numbering) - 1
    results = tuple(numbering.get(value, id(value)) for value in graph.outputs)
    return (len(graph.inputs), tuple(nodes), results)
