"""The history of a graph, pass by pass: its first state, and what every pass put into it and took out of it.

Nodes, values and graphs have numbers that are theirs from the first state to the last, so that states can be compared
and any of them can be drawn. Where nodes come from is recorded along (`lstm_lower.graph.provenance`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import onnx_ir as ir

from lstm_lower.graph import provenance
from lstm_lower.graph.dump import attribute_text, constant_text, type_text
from lstm_lower.graph.form import node_label
from lstm_lower.graph.scopes import scope
from lstm_lower.graph.subgraphs import with_inner
from lstm_lower.passes.model_pass import Pass


@dataclasses.dataclass(frozen=True, slots=True)
class NodeState:
    """A node as it is at one time.

    Attributes:
        number: the node's, in every state.
        graph: number of the graph that it stands in.
        op: its operator.
        domain: the operator's domain, empty for ONNX's own.
        name: its name, or its first output's.
        inputs: numbers of the values that it reads, `None` where one is left out.
        outputs: numbers of the values that it makes.
        attributes: names and texts of what is no graph.
        sources: numbers of the nodes of the first state that it stands for.
        scope: the modules around it, where its source tells them.
    """

    number: int
    graph: int
    op: str
    domain: str
    name: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    attributes: tuple[tuple[str, str], ...]
    sources: provenance.Sources
    scope: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GraphState:
    """A graph as it is at one time.

    Attributes:
        number: the graph's, in every state; 0 is the main graph's.
        owner: number of the node that holds it; `None` for the main graph.
        role: the name of the node's attribute.
        inputs: numbers of its inputs that a caller gives or a loop hands over.
        outputs: numbers of its outputs.
    """

    number: int
    owner: int | None
    role: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ValueState:
    """The last description of a value.

    Attributes:
        name: its name.
        type: its type, as `f32[T,B,4]`.
        constant: the value itself, or its type and hash, where it is a constant; else `None`.
    """

    name: str
    type: str
    constant: str | None


@dataclasses.dataclass(frozen=True)
class PassStep:
    """The doing of one pass; the first step is the graph itself.

    Attributes:
        pass_name: the pass; empty for the first step.
        round: how often its group of passes had run.
        nodes: nodes that are new or other than before.
        graphs: likewise.
        gone: numbers of nodes that are no more.
        added: how many of `nodes` are new.
        count: the number of nodes after it, at every level.
    """

    pass_name: str
    round: int
    nodes: tuple[NodeState, ...]
    graphs: tuple[GraphState, ...]
    gone: tuple[int, ...]
    added: int
    count: int


class _Numbers:
    """Numbers for objects, which are kept, so that none of a later object's is an earlier one's."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, thing: Hashable) -> int:
        return self._numbers.setdefault(thing, len(self._numbers))


class PassHistory:
    """Records the states of one model.

    Attributes:
        steps: in order.
        values: number -> what is said of the value.
    """

    def __init__(self) -> None:
        self.steps: list[PassStep] = []
        self.values: dict[int, ValueState] = {}
        self._nodes, self._values, self._graphs = _Numbers(), _Numbers(), _Numbers()
        self._before: dict[int, NodeState] = {}
        self._graphs_before: dict[int, GraphState] = {}
        self._texts: dict[int, tuple[ir.Attr, str]] = {}

    def begin(self) -> Pass:
        """A pass that marks the model's nodes, and records its first state."""
        return _Begin(self)

    def record(self, pass_name: str, round_number: int, model: ir.Model) -> None:
        """Records the state that a pass left, if the history has begun and the state is another one."""
        if self.steps:
            self._record(pass_name, round_number, model)

    def _record(self, pass_name: str, round_number: int, model: ir.Model) -> None:
        nodes, graphs = self._states(model.graph)
        put = tuple([state for number, state in nodes.items() if self._before.get(number) != state])
        gone = tuple([number for number in self._before if number not in nodes])
        changed = tuple([state for number, state in graphs.items() if self._graphs_before.get(number) != state])
        added = sum(state.number not in self._before for state in put)
        if put or gone or changed or not self.steps:
            self.steps.append(PassStep(pass_name, round_number, put, changed, gone, added, len(nodes)))
        self._before, self._graphs_before = nodes, graphs

    def _states(self, main: ir.Graph) -> tuple[dict[int, NodeState], dict[int, GraphState]]:
        nodes: dict[int, NodeState] = {}
        graphs: dict[int, GraphState] = {}
        owners: dict[ir.Graph, tuple[int, str]] = {}
        for graph in with_inner(main):
            number, owner = self._graphs(graph), owners.get(graph)
            inputs = tuple([self._value(value) for value in graph.inputs])
            outputs = tuple([self._value(value) for value in graph.outputs])
            graphs[number] = GraphState(number, owner and owner[0], "" if owner is None else owner[1], inputs, outputs)
            for node in graph:
                state = self._node(node, number)
                nodes[state.number] = state
                for name, attribute in node.attributes.items():
                    for inner in _graphs_of(attribute):
                        owners[inner] = (state.number, name)
        return nodes, graphs

    def _node(self, node: ir.Node, graph: int) -> NodeState:
        return NodeState(
            number=self._nodes(node),
            graph=graph,
            op=node.op_type,
            domain=node.domain,
            name=node_label(node),
            inputs=tuple([None if value is None else self._value(value) for value in node.inputs]),
            outputs=tuple([self._value(value) for value in node.outputs]),
            attributes=tuple(
                [(name, self._text(attr)) for name, attr in node.attributes.items() if not _graphs_of(attr)]
            ),
            sources=provenance.sources(node),
            scope=scope(node),
        )

    def _text(self, attribute: ir.Attr) -> str:
        if id(attribute) not in self._texts:
            # The attribute is kept beside its text, so that its id stays its own.
            self._texts[id(attribute)] = (attribute, attribute_text(attribute))
        return self._texts[id(attribute)][1]

    def _value(self, value: ir.Value) -> int:
        number = self._values(value)
        known = self.values.get(number)
        constant = constant_text(value) if known is None else known.constant
        self.values[number] = ValueState(value.name or "", type_text(value), constant)
        return number


class _Begin(Pass):
    preserves = True

    def __init__(self, history: PassHistory) -> None:
        self._history = history

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        provenance.mark(model)
        self._history._record("", 0, model)
        return ir.passes.PassResult(model, modified=False)


def _graphs_of(attribute: ir.Attr) -> list[ir.Graph]:
    if attribute.is_ref():
        return []
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    return list(attribute.as_graphs()) if attribute.type == ir.AttributeType.GRAPHS else []
