"""Copies of models, graphs and nodes; weights are shared.

Unlike onnx_ir's own, these take graphs that nest to any depth and models that are not verified yet: what nothing
defines is undefined in the copy, too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

import onnx_ir as ir

from lstm_lower.graph.subgraphs import all_graphs, subgraphs_of


def copy_model(model: ir.Model) -> ir.Model:
    """A copy of a model; marks in `meta` of the model itself stay behind."""
    functions = [
        ir.Function(
            function.domain,
            function.name,
            function.overload,
            graph=Copier().graph(function.graph),
            attributes=function.attributes,
        )
        for function in model.functions.values()
    ]
    copy = ir.Model(
        Copier().graph(model.graph),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        functions=functions,
        metadata_props=dict(model.metadata_props),
        device_configurations=model.device_configurations,
    )
    detach_names(copy)
    return copy


def detach_names(model: ir.Model) -> None:
    """Lets initializers be renamed: onnx_ir would write the new name into a tensor that belongs to someone else.

    Initializers of the main graph that are no outputs keep their names.
    """
    for graph in all_graphs(model):
        named = graph.initializers.values() if graph is not model.graph else graph.outputs
        for value in named:
            tensor = value.const_value
            if tensor is None or isinstance(tensor, ir.ExternalTensor):
                continue
            shape = ir.Shape(tensor.shape.numpy())
            if isinstance(tensor, ir.StringTensor):
                # A lazy tensor's bytes are asked for, which strings do not have.
                value.const_value = ir.StringTensor(tensor.string_data(), shape=shape, name=tensor.name)
            else:
                read = functools.partial(_same, tensor)
                value.const_value = ir.LazyTensor(read, tensor.dtype, shape, name=tensor.name)


def _same(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return tensor


@dataclasses.dataclass
class _Frame:
    """A list of nodes that is being copied, with the graph that it makes, if it makes one.

    Attributes:
        graph: the original; `None` for nodes that become part of a graph that is there.
        nodes: the originals still to come.
        copies: the copies so far.
        node: the original whose subgraphs are being copied.
        inner: originals of its subgraphs that are still to come.
        made: copies of its subgraphs, in order.
    """

    graph: ir.Graph | None
    nodes: Iterator[ir.Node]
    copies: list[ir.Node] = dataclasses.field(default_factory=list)
    node: ir.Node | None = None
    inner: list[ir.Graph] = dataclasses.field(default_factory=list)
    made: list[ir.Graph] = dataclasses.field(default_factory=list)


class Copier:
    """Copies nodes and the graphs within them.

    Attributes:
        values: original -> what stands for it in the copy.
    """

    def __init__(
        self,
        values: Mapping[ir.Value, ir.Value | None] | None = None,
        *,
        captures: bool = False,
        attributes: Mapping[str, ir.Attr] | None = None,
        name: Callable[[str | None], str | None] = lambda name: name,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Prepares.

        Args:
            values: what stands for values from outside.
            captures: whether other values from outside stand for themselves; else the copy gets undefined ones.
            attributes: what references to a function's attributes stand for; `None` leaves them references.
            name: gives a copied node or value its name.
            metadata: notes for every copied node, behind its own.
        """
        self.values: dict[ir.Value, ir.Value | None] = dict(values or {})
        self._captures = captures
        self._attributes = attributes
        self._name = name
        self._metadata = metadata or {}

    def graph(self, graph: ir.Graph) -> ir.Graph:
        """Copies a graph."""
        return self._run(self._enter(graph)).made[0]

    def nodes(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """Copies nodes, for a graph that is there."""
        listed = list(nodes)
        self._declare(listed)
        return self._run(_Frame(None, iter(listed))).copies

    def _run(self, first: _Frame) -> _Frame:
        """Copies what a frame holds; returns one with the results."""
        frames = [_Frame(None, iter(())), first]
        while len(frames) > 1:
            frame = frames[-1]
            if frame.inner:
                frames.append(self._enter(frame.inner.pop()))
                continue
            if frame.node is not None:
                frame.copies.append(self._node(frame.node, frame.made))
            frame.node = next(frame.nodes, None)
            if frame.node is not None:
                frame.inner, frame.made = list(reversed(subgraphs_of(frame.node))), []
                continue
            frames.pop()
            if frame.graph is not None:
                frames[-1].made.append(self._leave(frame.graph, frame.copies))
        return frames[0] if first.graph is not None else first

    def _enter(self, graph: ir.Graph) -> _Frame:
        for value in (*graph.inputs, *graph.initializers.values()):
            if value not in self.values:
                self.values[value] = self._value(value)
        nodes = list(graph)
        self._declare(nodes)
        return _Frame(graph, iter(nodes))

    def _declare(self, nodes: list[ir.Node]) -> None:
        # All at once, since a node may read, where the order is wrong, what a later one makes.
        for node in nodes:
            for value in node.outputs:
                self.values[value] = self._value(value)

    def _leave(self, graph: ir.Graph, nodes: list[ir.Node]) -> ir.Graph:
        copy = ir.Graph(
            [self._defined(value) for value in graph.inputs],
            [self._defined(value) for value in graph.outputs],
            nodes=nodes,
            initializers=[self._defined(value) for value in graph.initializers.values()],
            doc_string=graph.doc_string,
            opset_imports=dict(graph.opset_imports),
            name=graph.name,
            metadata_props=dict(graph.metadata_props),
        )
        copy.meta.update(graph.meta)
        return copy

    def _node(self, node: ir.Node, subgraphs: list[ir.Graph]) -> ir.Node:
        copy = ir.Node(
            node.domain,
            node.op_type,
            [None if value is None else self._operand(value) for value in node.inputs],
            list(self._attributes_of(node, iter(subgraphs))) if node.attributes else (),
            overload=node.overload,
            outputs=[self._defined(value) for value in node.outputs],
            version=node.version,
            name=self._name(node.name),
            doc_string=node.doc_string,
            metadata_props={**self._metadata, **node.metadata_props},
            device_configurations=tuple(map(self._device, node.device_configurations)),
        )
        if node.meta:
            copy.meta.update(node.meta)
        return copy

    def _attributes_of(self, node: ir.Node, subgraphs: Iterator[ir.Graph]) -> Iterator[ir.Attr]:
        for key, attribute in node.attributes.items():
            if attribute.is_ref():
                if self._attributes is None:
                    yield attribute
                elif (given := self._attributes.get(attribute.ref_attr_name or "")) is not None:
                    yield ir.Attr(key, given.type, given.value, doc_string=given.doc_string)
            elif attribute.type == ir.AttributeType.GRAPH:
                yield ir.Attr(key, attribute.type, next(subgraphs), doc_string=attribute.doc_string)
            elif attribute.type == ir.AttributeType.GRAPHS:
                graphs = [next(subgraphs) for _ in attribute.as_graphs()]
                yield ir.Attr(key, attribute.type, graphs, doc_string=attribute.doc_string)
            else:
                yield attribute

    def _operand(self, value: ir.Value) -> ir.Value | None:
        if value not in self.values:
            self.values[value] = value if self._captures else self._value(value)
        return self.values[value]

    def _defined(self, value: ir.Value) -> ir.Value:
        operand = self._operand(value)
        assert operand is not None
        return operand

    def _value(self, value: ir.Value) -> ir.Value:
        copy = ir.Value(
            name=self._name(value.name),
            type=value.type,
            shape=None if value.shape is None else value.shape.copy(),
            doc_string=value.doc_string,
            const_value=value.const_value,
            metadata_props=dict(value.metadata_props),
        )
        if value.meta:
            copy.meta.update(value.meta)
        return copy

    def _device(self, configuration: ir.NodeDeviceConfiguration) -> ir.NodeDeviceConfiguration:
        specs = [
            spec if spec.value is None else dataclasses.replace(spec, value=self._operand(spec.value))
            for spec in configuration.sharding_specs
        ]
        return dataclasses.replace(configuration, sharding_specs=tuple(specs))
