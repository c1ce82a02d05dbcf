"""Values of a loop's body that are written with their axes in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Shape
from lstm_lower.passes.loops.views.dependence import Dependence
from lstm_lower.passes.loops.views.loop import Loop, ScanInput, ScanOutput, State

Order = tuple[int, ...]


@dataclasses.dataclass(eq=False)
class Region:
    """Values that keep their axes in one order.

    Attributes:
        rank: of every value.
        values: the values.
        nodes: the nodes that make values of the region out of values of the region, in whatever order of axes.
    """

    rank: int
    values: dict[ir.Value, None] = dataclasses.field(default_factory=dict)
    nodes: set[ir.Node] = dataclasses.field(default_factory=set)


def order_of(facts: Facts, node: ir.Node) -> Order | None:
    """The order of axes that a Transpose makes."""
    transpose = std.Transpose.of(node, facts)
    return None if transpose is None else transpose.perm


def inverse(order: Order) -> Order:
    """The order that leads back."""
    return tuple(order.index(axis) for axis in range(len(order)))


class Writer:
    """Writes a region in another order of axes."""

    def __init__(self, loop: Loop, dependence: Dependence, region: Region, order: Order) -> None:
        self.loop = loop
        self.facts = loop.facts
        self.dependence = dependence
        self.region = region
        self.order = order
        self.turned: dict[ir.Value, ir.Value] = {}
        self.before = loop.before("layout")
        self.after = loop.after("layout")

    def write(self) -> None:
        """Rewrites the body and what stands around it."""
        loop, values = self.loop, self.region.values
        states = [state for state in loop.states if state.parameter in values]
        for state in states:
            self.turned[state.parameter] = self._twin(state.parameter, "state")
        for x in [x for x in loop.inputs if x.parameter in values]:
            self._walk(x)
        for node in self.dependence.order:
            if node in self.region.nodes:
                for value, result in zip(node.outputs, self._again(node), strict=True):
                    self.turned[value] = self._described(result, value)
                continue
            for value in node.outputs:
                if value in values:
                    self._bring(node, value)
        for value in values:
            self._serve(value)
        for output in [output for output in loop.outputs if output.step in values]:
            self._turn_back(output)
        for state in states:
            self._carry(state)

    def _again(self, node: ir.Node) -> Sequence[ir.Value]:
        """Writes a node of the region again, for the new order."""
        e, place = self.loop.inside(before=node), inverse(self.order)
        operands = [self._operand(value) for value in node.inputs]
        match self.facts.view(node):
            case std.MatMul(a=a, b=weight):
                assert a is not None
                return [e.op(std.MatMul, self.before.transpose(weight, self.order), self.turned[a])]
            case std.Transpose(perm=(*own,)):
                # The same move among axes that stand in another order.
                return e.again(node, operands, perm=[place[own[axis]] for axis in self.order]).outputs
            case std.Split(axis=int(axis)) | std.Concat(axis=int(axis)):
                return e.again(node, operands, axis=place[axis]).outputs
            case std.Elementwise():
                operands = [self._spread(value) for value in operands]
        return e.again(node, operands).outputs

    def _spread(self, value: ir.Value | None) -> ir.Value | None:
        """A vector of an outer scope that is broadcast along the last axis, laid along the place of that axis."""
        if value is None or self.facts.rank(value) != 1:
            return value
        last = self.region.rank - 1
        return self.before.unsqueeze(value, *(place for place, axis in enumerate(self.order) if axis != last))

    def _twin(self, value: ir.Value, hint: str) -> ir.Value:
        return self.loop.space.value(self.loop.scope(hint), self.facts.type(value), self._turned_shape(value))

    def _described(self, turned: ir.Value, value: ir.Value) -> ir.Value:
        """Says of a turned value what is known of the upright one."""
        shape = self._turned_shape(value)
        return turned if shape is None else self.before.set_shape(turned, shape)

    def _turned_shape(self, value: ir.Value) -> Shape | None:
        shape = self.facts.shape(value)
        return None if shape is None else tuple(shape[axis] for axis in self.order)

    def _walk(self, x: ScanInput) -> None:
        turned = self.turned_sequence(self.before.move_axis(x.sequence, x.axis, 0, self.region.rank + 1))
        self.turned[x.parameter] = self._described(self.loop.add_input(turned, reverse=x.reverse), x.parameter)

    def turned_sequence(self, sequence: ir.Value) -> ir.Value:
        """A sequence that the loop walks along, time on axis 0, with its elements in the new order."""
        return self.before.transpose(sequence, (0, *(axis + 1 for axis in self.order)))

    def _operand(self, value: ir.Value | None) -> ir.Value | None:
        if value is None or value not in self.region.values:
            return value
        if value not in self.turned:
            # A value of an outer scope.
            self.turned[value] = self.before.transpose(value, self.order)
        return self.turned[value]

    def _bring(self, node: ir.Node, value: ir.Value) -> None:
        """Brings what another node makes into the order."""
        own = order_of(self.facts, node)
        source = node.inputs[0] if node.inputs else None
        # Of a value of the region nothing is left that lies as it did.
        if own is not None and inverse(own) == self.order and source is not None and source not in self.region.values:
            self.turned[value] = source
            return
        self.turned[value] = self._described(self._behind(node).transpose(value, self.order), value)

    def _behind(self, node: ir.Node | None) -> Builder:
        """Emits right behind a node of the body, or at its start."""
        loop, scope = self.loop, self.loop.scope("layout")
        if node is not None and node.graph is loop.body:
            return Builder(loop.space, loop.body, after=node, scope=scope)
        return Builder(loop.space, loop.body, before=next(iter(loop.body)), scope=scope)

    def _serve(self, value: ir.Value) -> None:
        """Lets readers outside the region read the turned value."""
        turned = self.turned.get(value)
        others = [reader for reader in self.dependence.readers(value) if reader not in self.region.nodes]
        if turned is None or not others or value is turned:
            return
        kept: list[ir.Node] = []
        for reader in others:
            if order_of(self.facts, reader) == self.order and reader.outputs[0] not in self.region.values:
                self.loop.substitute(reader.outputs[0], turned)
            elif reader is not turned.producer():
                kept.append(reader)
        if not kept or not self._is_replaced(value):
            return
        upright = self._behind(turned.producer()).transpose(turned, inverse(self.order))
        for user, index in list(value.uses()):
            if user not in self.region.nodes:
                user.replace_input_with(index, upright)

    def _is_replaced(self, value: ir.Value) -> bool:
        """Whether a value is there in the new order only; what was made elsewhere is there in its own as well."""
        return value.producer() in self.region.nodes or any(value is own for own in self.loop.body.inputs)

    def _turn_back(self, output: ScanOutput) -> None:
        output.step = self.turned[output.step]
        made = self.loop.add_output(output.step)
        made.reverse = output.reverse
        upright = self.after.transpose(made.sequence, (0, *(axis + 1 for axis in inverse(self.order))))
        sequence = self.after.move_axis(upright, 0, output.axis, self.region.rank + 1)
        self.loop.outputs.remove(output)
        replace(output.sequence, sequence, self.loop.space)

    def _carry(self, state: State) -> None:
        final = self._twin(state.final, "final")
        replace(state.final, self.after.transpose(final, inverse(self.order)), self.loop.space)
        state.initial = self.before.transpose(state.initial, self.order)
        state.parameter, state.final = self.turned[state.parameter], final
        state.update = self.turned[state.update]
