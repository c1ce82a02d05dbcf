"""Digests of how values are computed, by which equal values of two models are found."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.standard.view import constant_of

_SIZE = 16


class Digests:
    """Digests of every node and value of a model.

    Two values have the same digest where the same is computed of the same inputs, by name, and of the same constants,
    by content; the names of nodes and inner values do not matter. An input of a body is known by how deep the body lies
    and by its position, a parameter of a function by its position.

    Attributes:
        values: value -> its digest.
        nodes: node -> its digest.
    """

    def __init__(self, model: ir.Model) -> None:
        self.values: dict[ir.Value, bytes] = {}
        self.nodes: dict[ir.Node, bytes] = {}
        self._model = model
        for value in model.graph.inputs:
            self.values[value] = _digest("input", value.name)
        self._graph(model.graph, 0)
        for function in model.functions.values():
            for position, value in enumerate(function.inputs):
                self.values[value] = _digest("parameter", position)
            self._graph(function.graph, 0)

    def of(self, value: ir.Value | None) -> bytes:
        """A value's digest."""
        return b"" if value is None else self.values[value]

    def attributes(self, node: ir.Node) -> dict[str, bytes]:
        """A node's attributes by name, but for graphs."""
        return {name: _attribute(attr) for name, attr in node.attributes.items() if not _graphs(attr)}

    def _graph(self, graph: ir.Graph, depth: int) -> bytes:
        for value in graph.initializers.values():
            if value not in self.values:
                self.values[value] = _content(value)
        for node in graph:
            self._node(node, depth)
        # Nodes that nothing reads count too.
        nodes = sorted(self.nodes[node] for node in graph if not is_constant(node))
        return _digest("graph", len(graph.inputs), *[self.of(value) for value in graph.outputs], *nodes)

    def _node(self, node: ir.Node, depth: int) -> None:
        if is_constant(node):
            self.nodes[node] = self.values[node.outputs[0]] = _content(node.outputs[0])
            return
        parts: list[Any] = [node.domain, node.op_type, node.overload, len(node.outputs), is_stop(node)]
        parts += [self.of(value) for value in node.inputs]
        for name, attribute in sorted(node.attributes.items()):
            parts += [name, *(self._body(graph, depth) for graph in _graphs(attribute))]
            parts += [] if _graphs(attribute) else [_attribute(attribute)]
        self.nodes[node] = _digest("node", *parts)
        for position, value in enumerate(node.outputs):
            self.values[value] = _digest("output", self.nodes[node], position)

    def _body(self, graph: ir.Graph, depth: int) -> bytes:
        for position, value in enumerate(graph.inputs):
            self.values[value] = _digest("element", depth, position)
        return self._graph(graph, depth + 1)


def is_stop(node: ir.Node) -> bool:
    """Whether a node has the mark that no gradient flows through it."""
    return std.STOPPED in node.metadata_props


def is_constant(node: ir.Node) -> bool:
    """Whether a node makes a constant: an operand of those that read it."""
    return constant_of(node.outputs[0] if node.outputs else None) is not None


def _digest(*parts: Any) -> bytes:
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()


def _content(value: ir.Value) -> bytes:
    if value.const_value is not None:
        return _tensor(value.const_value)
    array = constant_of(value)
    assert array is not None
    return _array(array)


def _tensor(tensor: ir.TensorProtocol) -> bytes:
    return _array(tensor.numpy())


def _array(array: np.ndarray[Any, Any]) -> bytes:
    # The bytes of texts are pointers.
    data = repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return _digest("constant", str(array.dtype), array.shape, hashlib.blake2b(data, digest_size=_SIZE).digest())


def _attribute(attribute: ir.Attr) -> bytes:
    if attribute.is_ref():
        return _digest("reference", attribute.ref_attr_name)
    value = attribute.value
    if isinstance(value, ir.TensorProtocol):
        return _tensor(value)
    if isinstance(value, Sequence) and any(isinstance(item, ir.TensorProtocol) for item in value):
        return _digest("tensors", *[_tensor(item) for item in value])
    return _digest("value", attribute.type.name, list(value) if isinstance(value, (list, tuple)) else value)


def _graphs(attribute: ir.Attr) -> Sequence[ir.Graph]:
    if attribute.is_ref():
        return ()
    if attribute.type == ir.AttributeType.GRAPH:
        return (attribute.as_graph(),)
    return attribute.as_graphs() if attribute.type == ir.AttributeType.GRAPHS else ()


def graphs_by_name(node: ir.Node) -> dict[str, ir.Graph]:
    """A node's subgraphs by attribute and position."""
    return {
        name if len(graphs) == 1 else f"{name}[{position}]": graph
        for name, attribute in node.attributes.items()
        if (graphs := _graphs(attribute))
        for position, graph in enumerate(graphs)
    }
