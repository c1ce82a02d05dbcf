"""Whether a model is well formed: what ONNX demands of the structure of any graph.

onnx's own checker and shape inference are C++ that malformed models are known to abort, and the whole process with
them; they may see a model only after it has passed here. Everything here walks without recursion, however deep graphs
nest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.form import node_label, verify_dense, verify_form
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of

if TYPE_CHECKING:
    # It takes a tenth of a second to import, and few models have functions or cycles.
    import networkx as nx

STANDARD_DOMAINS = ("", "ai.onnx")


def verify_structure(model: ir.Model) -> None:
    """Verifies names, order, scopes, operators' forms, attributes, functions and dense weights of a whole model.

    A subgraph's inputs and initializers may shadow names of outer scopes, as onnx's checker has it.

    Raises:
        InvalidModelError: the first fault found.
    """
    _verify_imports(model.opset_imports)
    for function in model.functions.values():
        _verify_imports(function.opset_imports)
    verify_calls(model)
    for function in model.functions.values():
        _Walk(model, function.opset_imports, frozenset(function.attributes)).run(function.graph)
    _Walk(model, model.opset_imports, None).run(model.graph)


def nesting(model: ir.Model) -> int:
    """How deep graphs nest: 1 where no node holds a graph."""
    deepest = 0
    levels = [(graph, 1) for graph in [model.graph, *(function.graph for function in model.functions.values())]]
    while levels:
        graph, level = levels.pop()
        deepest = max(deepest, level)
        levels += [(inner, level + 1) for node in graph for inner in subgraphs_of(node)]
    return deepest


def function_label(function: ir.Function | ir.OperatorIdentifier) -> str:
    """`domain.name`."""
    domain, name, overload = function.identifier() if isinstance(function, ir.Function) else function
    return f"{domain}.{name}" + (f":{overload}" if overload else "")


def _verify_imports(imports: Mapping[str, int]) -> None:
    newest = onnx.defs.onnx_opset_version()
    for domain, version in imports.items():
        if not isinstance(domain, str):
            raise InvalidModelError(f"an opset import requires a domain in UTF-8, got {domain!r}")
        if domain in STANDARD_DOMAINS and not 1 <= version <= newest:
            raise InvalidModelError(
                f"the model requires an opset of 1 to {newest}, the newest of onnx here, got {version}"
            )
    own = [imports[domain] for domain in STANDARD_DOMAINS if domain in imports]
    if len(set(own)) > 1:
        raise InvalidModelError(f"the model requires one opset of ai.onnx, got {own[0]} and {own[1]}")


def verify_calls(model: ir.Model) -> None:
    """Verifies that functions do not call each other in a circle.

    Raises:
        InvalidModelError: they do; the circle is named.
    """
    if not model.functions:
        return
    import networkx as nx

    calls: nx.DiGraph[ir.OperatorIdentifier] = nx.DiGraph()
    for identifier, function in model.functions.items():
        for node in all_nodes(function):
            if node.op_identifier() in model.functions:
                calls.add_edge(identifier, node.op_identifier())
    if cycle := _cycle(calls):
        names = " -> ".join(function_label(function) for function in cycle)
        raise InvalidModelError(f"functions require an order of calls, got a cycle: {names}")


def _cycle(graph: nx.DiGraph[Any]) -> list[Any]:
    """The members of one cycle, the first again at the end, or nothing."""
    import networkx as nx

    try:
        edges = nx.find_cycle(graph)
    except nx.NetworkXNoCycle:
        return []
    return [edge[0] for edge in edges] + [edges[0][0]]


@dataclasses.dataclass
class _Frame:
    """A graph that the walk is in.

    Attributes:
        graph: the graph.
        nodes: those still to come.
        own: names that the graph defines.
        shadowed: name -> the outer scopes' value that the graph's own one hides.
        node: the node whose subgraphs are being walked.
        inner: the subgraphs of it that are still to come.
    """

    graph: ir.Graph
    nodes: Iterator[ir.Node]
    own: set[str] = dataclasses.field(default_factory=set)
    shadowed: dict[str, ir.Value] = dataclasses.field(default_factory=dict)
    node: ir.Node | None = None
    inner: list[ir.Graph] = dataclasses.field(default_factory=list)


class _Walk:
    """One walk through a graph and the graphs within it."""

    def __init__(self, model: ir.Model, imports: Mapping[str, int], parameters: frozenset[str] | None) -> None:
        self.functions = model.functions
        self.imports = imports
        self.parameters = parameters
        self.scope: dict[str, ir.Value] = {}
        self.frames: list[_Frame] = []
        self.fitting: set[tuple[ir.OperatorIdentifier, int, int]] = set()

    def run(self, root: ir.Graph) -> None:
        """Verifies the graph.

        Raises:
            InvalidModelError: the first fault found.
        """
        self._enter(root)
        while self.frames:
            frame = self.frames[-1]
            if frame.inner:
                self._enter(frame.inner.pop())
                continue
            if frame.node is not None:
                for value in frame.node.outputs:
                    self._define_output(frame, frame.node, value)
            frame.node = next(frame.nodes, None)
            if frame.node is None:
                self._leave(frame)
            else:
                self._node(frame, frame.node)

    def _enter(self, graph: ir.Graph) -> None:
        frame = _Frame(graph, iter(graph))
        self.frames.append(frame)
        for value in graph.inputs:
            self._define(frame, value, "graph input")
        for name, value in graph.initializers.items():
            # The default of an input is defined already.
            if value.name not in frame.own or self.scope.get(value.name) is not value:
                self._define(frame, value, "initializer")
            if value.const_value is not None:
                verify_dense(f"initializer '{name}'", value.const_value)

    def _leave(self, frame: _Frame) -> None:
        for value in frame.graph.outputs:
            if value.name not in frame.own or self.scope[value.name] is not value:
                raise InvalidModelError(
                    f"graph output '{value.name}' requires a value of the graph's own, got one that nothing defines"
                )
        for name in frame.own:
            del self.scope[name]
        self.scope.update(frame.shadowed)
        self.frames.pop()

    def _define(self, frame: _Frame, value: ir.Value, what: str | ir.Node) -> None:
        name = value.name
        if not isinstance(name, str) or not name:
            raise InvalidModelError(f"{_place(what)} requires a name, got {name!r}")
        if name in frame.own:
            raise InvalidModelError(f"{_place(what)} '{name}' requires a name of its own, got one that is taken")
        if name in self.scope:
            frame.shadowed[name] = self.scope[name]
        frame.own.add(name)
        self.scope[name] = value

    def _define_output(self, frame: _Frame, node: ir.Node, value: ir.Value) -> None:
        # An output that nothing reads may be left out.
        if not value.name and not value.uses():
            return
        # What shadows a name must stand at a graph's beginning; a node may take a name that an outer scope uses later.
        if value.name in self.scope:
            raise InvalidModelError(f"{_place(node)} '{value.name}' requires a name of its own, got one that is taken")
        self._define(frame, value, node)

    def _node(self, frame: _Frame, node: ir.Node) -> None:
        for text in (node.op_type, node.domain, node.name):
            if not isinstance(text, str) and text is not None:
                raise InvalidModelError(f"{_label(node)}: a name requires text in UTF-8, got {text!r}")
        for index, operand in enumerate(node.inputs):
            # By name and by identity: the name is what a file keeps.
            if operand is not None and self.scope.get(operand.name or "") is not operand:
                self._raise_undefined(frame.graph, node, index, operand)
        if node.attributes.data or None in node.inputs:
            verify_form(node, self.imports, self.functions, self.parameters)
            frame.inner = list(reversed(subgraphs_of(node)))
            return
        # Most nodes have only operands, and many the same number of them.
        form = (node.op_identifier(), len(node.inputs), len(node.outputs))
        if form not in self.fitting:
            verify_form(node, self.imports, self.functions, self.parameters)
            self.fitting.add(form)

    def _raise_undefined(self, graph: ir.Graph, node: ir.Node, index: int, operand: ir.Value) -> NoReturn:
        producer = operand.producer()
        if producer is not None and producer.graph is graph:
            if cycle := _cycle(_flow(graph)):
                names = " -> ".join(map(node_label, cycle))
                raise InvalidModelError(f"{_label(node)}: the graph requires an order, got a cycle: {names}")
            raise InvalidModelError(
                f"{_label(node)}: input {index} requires a value defined before, got '{operand.name}'"
            )
        raise InvalidModelError(
            f"{_label(node)}: input {index} requires a defined value, got '{operand.name}', which nothing defines"
        )


def _place(what: str | ir.Node) -> str:
    return what if isinstance(what, str) else f"{_label(what)}: output"


def _label(node: ir.Node) -> str:
    return f"{node.op_type} '{node_label(node)}'"


def _flow(graph: ir.Graph) -> nx.DiGraph[Any]:
    import networkx as nx

    flow: nx.DiGraph[ir.Node] = nx.DiGraph()
    for node in graph:
        flow.add_edges_from((producer, node) for producer in node.predecessors())
    return flow
