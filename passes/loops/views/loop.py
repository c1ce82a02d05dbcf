"""A mutable view of a Scan node, which all loop passes use.

The view names the roles of a Scan's operands and results. Passes edit its lists and the body's nodes and then call
`commit`, which writes everything back and keeps the node a valid Scan: every body output is made by a node of the
body, and each one only once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterator
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.edit import captures, detach, redirect, remove_unread, set_operands, set_outputs
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.graph.values import Dim, stated

# Marks, in a node's `metadata_props` and so in the file, too, of what the schedule made of one Scan: the Scan over
# blocks of steps, whose body is a loop's surroundings, not a loop body to take work out of, and the Scan over the
# steps of a block.
BLOCKS, BLOCK = "lstm_lower.blocks", "lstm_lower.block"


@dataclasses.dataclass(eq=False)
class State:
    """A carried value.

    Attributes:
        initial: its value before the first step.
        parameter: the body's input.
        update: the body's value after the step.
        final: the Scan's output.
    """

    initial: ir.Value
    parameter: ir.Value
    update: ir.Value
    final: ir.Value


@dataclasses.dataclass(eq=False)
class ScanInput:
    """A sequence that the loop walks along.

    Attributes:
        sequence: the Scan's input.
        parameter: the body's input, one element along `axis`.
        axis: the axis of time in `sequence`, negative ones as they were written.
        reverse: whether the walk goes from the last element to the first.
    """

    sequence: ir.Value
    parameter: ir.Value
    axis: int = 0
    reverse: bool = False


@dataclasses.dataclass(eq=False)
class ScanOutput:
    """A sequence that the loop makes.

    Attributes:
        step: the body's value of one step.
        sequence: the Scan's output.
        axis: the axis of time in `sequence`.
        reverse: whether the first step stands last.
    """

    step: ir.Value
    sequence: ir.Value
    axis: int = 0
    reverse: bool = False


class Loop:
    """The view.

    Attributes:
        node: the Scan.
        body: its body; nodes may be added and removed, inputs and outputs are written by `commit`.
        states: carried values.
        inputs: sequences walked along.
        outputs: sequences made.
    """

    def __init__(self, node: ir.Node, space: Workspace) -> None:
        """Reads a Scan node.

        Args:
            node: a Scan of opset 9 or newer.
            space: names, facts and version of the model.
        """
        assert is_scan(node)
        self.node = node
        self.space = space
        self.names = space.names
        self.opset = space.opset
        view = std.Scan(node, space.facts)
        self.body = view.body
        split = view.states
        self.states = [
            State(initial, parameter, update, final)
            for initial, parameter, update, final in zip(
                _present(node.inputs[:split]),
                self.body.inputs[:split],
                self.body.outputs[:split],
                node.outputs[:split],
                strict=True,
            )
        ]
        self.inputs = [
            ScanInput(*roles)
            for roles in zip(
                _present(node.inputs[split:]),
                self.body.inputs[split:],
                view.input_axes,
                map(bool, view.input_directions),
                strict=True,
            )
        ]
        # A body hands no value out twice: Identities do, which `commit` writes anew where they are needed.
        self.outputs = [
            ScanOutput(*roles)
            for roles in zip(
                map(behind_identity, self.body.outputs[split:]),
                node.outputs[split:],
                view.output_axes,
                map(bool, view.output_directions),
                strict=True,
            )
        ]
        self._written = self._operand_list()

    @property
    def facts(self) -> Facts:
        """What is known of the model's values."""
        return self.space.facts

    @property
    def graph(self) -> ir.Graph:
        """The graph that the Scan stands in."""
        graph = self.node.graph
        assert graph is not None
        return graph

    @property
    def is_current(self) -> bool:
        """Whether the node reads what the view says: other loops that commit put values of their own in its place."""
        return self._operands() == list(self.node.inputs)

    @property
    def reverse(self) -> bool:
        """The direction of most of the loop's sequences: the one that work taken out of the body is written in."""
        directions = [x.reverse for x in self.inputs] or [x.reverse for x in self.outputs]
        return sum(directions) * 2 > len(directions)

    @property
    def length(self) -> Dim | None:
        """The number of steps: a number, the name of a symbolic size, its identity, or not known."""
        dims = [shape[x.axis] for x in self.inputs if (shape := self.facts.shape(x.sequence)) is not None]
        certain = [dim for kind in (int, str) for dim in dims if isinstance(dim, kind)]
        return next(iter([*certain, *dims]), None)

    def scope(self, what: str) -> str:
        """The name of something that is made for the loop, after the loop's own."""
        return f"{self.node.name or 'loop'}/{what}"

    def before(self, scope: str = "hoisted") -> Builder:
        """Emits before the loop."""
        return Builder(self.space, self.graph, before=self.node, scope=self.scope(scope))

    def after(self, scope: str = "sunk") -> Builder:
        """Emits after the loop."""
        return Builder(self.space, self.graph, after=self.node, scope=self.scope(scope))

    def inside(self, before: ir.Node | None = None, scope: str = "body") -> Builder:
        """Emits in the body, at its end or before one of its nodes."""
        stands_for = provenance.sources(before or self.node)
        return Builder(self.space, self.body, before=before, scope=self.scope(scope), stands_for=stands_for)

    def captures(self) -> list[ir.Value]:
        """Values of outer scopes that the body reads."""
        return captures(self.node)

    def conditions(self) -> Iterator[ir.Value]:
        """The body's outputs that control the loop itself: none in a Scan."""
        yield from ()

    def results(self) -> Iterator[ir.Value]:
        """The body's outputs: updates of the states, then the steps of the outputs."""
        yield from (state.update for state in self.states)
        yield from (output.step for output in self.outputs)

    def substitute(self, old: ir.Value, new: ir.Value) -> None:
        """Lets every reader in the body, and the body's outputs, read `new` instead of `old`."""
        self.facts.replaced(old, new, self.node.graph)
        redirect(old, new)
        for state in self.states:
            state.update = new if state.update is old else state.update
        for output in self.outputs:
            output.step = new if output.step is old else output.step

    def add_input(self, sequence: ir.Value, *, reverse: bool | None = None) -> ir.Value:
        """Walks along one more sequence, time on axis 0; returns the body's value of one step."""
        shape = self.facts.shape(sequence)
        step = None if shape is None else shape[1:]
        parameter = self.space.value(self.scope("input"), self.facts.type(sequence), step)
        self.inputs.append(ScanInput(sequence, parameter, 0, self.reverse if reverse is None else reverse))
        return parameter

    def add_output(self, step: ir.Value) -> ScanOutput:
        """Makes one more sequence, time on axis 0 in the loop's direction."""
        sequence = self.space.value(self.scope("output"), self.facts.type(step), self._whole(step))
        output = ScanOutput(step, sequence, 0, self.reverse)
        self.outputs.append(output)
        return output

    def _whole(self, step: ir.Value) -> tuple[Dim | None, ...] | None:
        """The shape of a value's sequence; `None` where it is told by the node once it is written."""
        shape = self.facts.shape(step)
        return None if shape is None else (self.length, *shape)

    def plain_outputs(self) -> list[ScanOutput]:
        """The outputs with time on axis 0, in the loop's direction."""
        return [x for x in self.outputs if x.axis == 0 and x.reverse == self.reverse]

    def made(self, step: ir.Value) -> ScanOutput | None:
        """The output that makes a sequence of this value, see `plain_outputs`."""
        return next((x for x in self.plain_outputs() if x.step is step), None)

    def stacked(self, step: ir.Value) -> ScanOutput:
        """The output that makes a sequence of this value, see `made`; added if missing."""
        return self.made(step) or self.add_output(step)

    def drop_state(self, state: State) -> None:
        """Removes a state that nothing reads any more."""
        self.states.remove(state)

    def commit(self) -> None:
        """Writes the view back to the node; sequences that nothing reads are not made any more.

        A loop that makes nothing any more is gone from its graph.
        """
        self.outputs = [x for x in self.outputs if x.sequence.uses() or x.sequence.is_graph_output()]
        if not self.states and not self.outputs:
            if self.node.graph is not None:
                detach(self.node)
            return
        self._drop_unread_inputs()
        self._write_results()
        remove_unread(self.body)
        self._drop_unread_inputs()
        self._write_operands()

    def write(self) -> None:
        """Writes the view back to the node as it is, whether anything reads what it makes or not."""
        self._write_results()
        self._write_operands()

    def _write_results(self) -> None:
        self._normalise_results()
        self.body.outputs.clear()
        self.body.outputs.extend(self.results())

    def _parameters(self) -> list[ir.Value]:
        return [*(state.parameter for state in self.states), *(x.parameter for x in self.inputs)]

    def _operand_list(self) -> list[Any]:
        states = [(s.initial, s.parameter, s.final) for s in self.states]
        inputs = [(x.sequence, x.parameter, x.axis, x.reverse) for x in self.inputs]
        return [states, inputs, [(x.sequence, x.axis, x.reverse) for x in self.outputs]]

    def unread_inputs(self) -> list[ScanInput]:
        """Sequences that no step reads, but for the one that tells the number of steps."""
        results = set(self.results())
        unread = [x for x in self.inputs if not x.parameter.uses() and x.parameter not in results]
        # A Scan needs one sequence to know the number of its steps: the one that costs least stays.
        if len(unread) == len(self.inputs) and unread:
            unread.remove(min(unread, key=self._size))
        return unread

    def _drop_unread_inputs(self) -> None:
        unread = self.unread_inputs()
        self.inputs = [x for x in self.inputs if x not in unread]

    def _size(self, x: ScanInput) -> tuple[bool, int, int]:
        """Order of size: unknown dimensions count as large."""
        rank = self.facts.rank(x.sequence)
        return rank is None, self.facts.elements(x.sequence, 256), rank or 0

    def _normalise_results(self) -> None:
        seen: set[ir.Value] = set()
        editor = self.inside()
        for holder, field in self._holders():
            value: ir.Value = getattr(holder, field)
            producer = value.producer()
            if producer is None or producer.graph is not self.body or value in seen:
                value = self._handed_on(value, seen) or editor.op(std.Identity, value)
                setattr(holder, field, value)
            if value.shape is None and (shape := self.facts.shape(value)) is not None:
                # onnxruntime asks for the rank of what leaves a body, which it does not always find out.
                value.type, value.shape = self.facts.type(value), stated(shape)
            seen.add(value)

    def _handed_on(self, value: ir.Value, seen: Container[ir.Value]) -> ir.Value | None:
        """What an Identity of the body makes of a value for the body's outputs alone."""
        users = [user for user, _ in value.uses() if user.graph is self.body and std.Identity.hands_on(user)]
        return next((x for user in users if makes_result(user) and (x := user.outputs[0]) not in seen), None)

    def _holders(self) -> list[tuple[Any, str]]:
        """What names the body's outputs, in their order."""
        return [*((state, "update") for state in self.states), *((output, "step") for output in self.outputs)]

    def _operands(self) -> list[ir.Value | None]:
        """The node's operands."""
        return [*(state.initial for state in self.states), *(x.sequence for x in self.inputs)]

    def _attributes(self) -> dict[str, Any]:
        """The node's attributes besides its body; `None` for those that are as by default."""
        attributes: dict[str, Any] = {"num_scan_inputs": len(self.inputs)}
        for key, roles, field in (
            ("scan_input_axes", self.inputs, "axis"),
            ("scan_input_directions", self.inputs, "reverse"),
            ("scan_output_axes", self.outputs, "axis"),
            ("scan_output_directions", self.outputs, "reverse"),
        ):
            values = [int(getattr(role, field)) for role in roles]
            attributes[key] = values if any(values) else None
        return attributes

    def _write_operands(self) -> None:
        self.body.inputs.clear()
        self.body.inputs.extend(self._parameters())
        written, self._written = self._written, self._operand_list()
        if self._written != written:
            self._write_node()

    def _write_node(self) -> None:
        node, operands = self.node, self._operands()
        node.resize_inputs(len(operands))
        set_operands(node, dict(enumerate(operands)))
        set_outputs(node, [*(state.final for state in self.states), *(output.sequence for output in self.outputs)])
        for key, value in self._attributes().items():
            node.attributes.pop(key, None)
            if value is not None:
                node.attributes[key] = ir.convenience.convert_attribute(key, value)
        self.space.facts.enter(node)


def behind_identity(value: ir.Value) -> ir.Value:
    """The value that an Identity passes on; not that behind one which stops gradients."""
    producer = value.producer()
    while std.Identity.hands_on(producer):
        source = producer.inputs[0]
        assert source is not None
        value, producer = source, source.producer()
    return value


def makes_result(node: ir.Node) -> bool:
    """Whether a node is an Identity that nothing but the body's outputs read: each output has to be made once."""
    return std.Identity.matches(node) and not node.outputs[0].uses()


def is_scan(node: ir.Node) -> bool:
    """Whether a node is a Scan of opset 9 or newer (the older one has a batch axis and a lengths input)."""
    return std.Scan.matches(node) and "body" in node.attributes and None not in node.inputs


def is_over_blocks(node: ir.Node) -> bool:
    """Whether a Scan is one over blocks of steps: its body is the surroundings of a loop, not work that is repeated."""
    return BLOCKS in node.metadata_props


def is_divided(node: ir.Node) -> bool:
    """Whether a chunked schedule made a Scan, that over blocks or that over a block's steps."""
    return is_over_blocks(node) or BLOCK in node.metadata_props


def scans_of(graph: ir.Graph) -> list[ir.Node]:
    """All Scans of a graph and its subgraphs, inner ones before those that hold them."""
    return inner_first(graph, is_scan)


def inner_first(graph: ir.Graph, chosen: Callable[[ir.Node], bool]) -> list[ir.Node]:
    """Nodes with subgraphs, of a graph and its subgraphs, inner ones before those that hold them."""
    nodes: list[ir.Node] = []
    for node in graph:
        if inner := subgraphs_of(node):
            for subgraph in inner:
                nodes += inner_first(subgraph, chosen)
            if chosen(node):
                nodes.append(node)
    return nodes


def _present(values: tuple[ir.Value | None, ...] | Any) -> list[ir.Value]:
    return [value for value in values if value is not None]
