"""Layout assignment: values of a loop's body are kept with their axes in the order that most of the body wants.

Exporters that keep an axis of their own (a seed direction, a time step, a vmapped axis) transpose values for a product
and transpose its result back, at every step.

Precondition: any Scan. Values joined by elementwise nodes, and states with their updates, make a *region* that can be
kept in any one order of axes. Where a region is read or made by Transposes, the body is written for the order that
they want; sequences, initial states and invariant values are transposed outside, once.

Postcondition: the body moves fewer elements and holds no more Transposes than before. What is moved outside counts too,
except along axes of size 1, which costs nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Shape
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.views.dependence import Dependence
from lstm_lower.passes.loops.views.loop import Loop, ScanInput, ScanOutput, State
from lstm_lower.passes.loops.views.loop_pass import LoopPass

# What a node costs besides the elements that it moves, in elements.
NODE = 256

Order = tuple[int, ...]


class LayoutAssignment(LoopPass):
    """Chooses the axis order in regions of a loop body."""

    # What the body holds of its own, the same at every step, is transposed where it stands, outside.
    needs = (InvariantHoisting,)

    def rewrite(self, loop: Loop) -> bool:
        """Rewrites the first region that gains by it."""
        if not any(_order_of(self.facts, node) is not None for node in loop.body):
            return False
        dependence = Dependence(loop)
        transposes = [node for node in dependence.order if _order_of(self.facts, node) is not None]
        for region in _regions(loop, dependence):
            for order in region.wanted(self.facts, transposes):
                if region.gain(loop, dependence, order) > 0:
                    _Writer(loop, dependence, region, order).write()
                    loop.commit()
                    return True
        return False


@dataclasses.dataclass(eq=False)
class _Region:
    """Values that keep their axes in one order, and what another order would be worth.

    Attributes:
        rank: of every value.
        values: the values.
        nodes: the nodes that make values of the region out of values of the region, in whatever order of axes.
    """

    rank: int
    values: dict[ir.Value, None] = dataclasses.field(default_factory=dict)
    nodes: set[ir.Node] = dataclasses.field(default_factory=set)

    def wanted(self, facts: Facts, transposes: list[ir.Node]) -> list[Order]:
        """The orders that Transposes bring values of the region into, or bring them out of."""
        found: dict[Order, None] = {}
        for node in transposes:
            order = _order_of(facts, node)
            assert order is not None
            if node in self.nodes:
                continue
            if len(order) == self.rank and node.inputs[0] in self.values:
                found[order] = None
            if node.outputs[0] in self.values:
                found[_inverse(order)] = None
        return [order for order in found if list(order) != sorted(order)]

    def gain(self, loop: Loop, dependence: Dependence, order: Order) -> int:
        """Elements per step that need no moving any more, less those that need it now."""
        facts, steps = loop.facts, {output.step for output in loop.outputs}
        outer = {*(x.parameter for x in loop.inputs)}
        total = sum(_gained_within(facts, node, order) for node in self.nodes)
        for value in self.values:
            made = self._making(value, loop)
            if made is not None:
                total += _moved(facts, made) - _moved_after(facts, made, order, value)
            elif value in outer:
                total -= _volume(facts, value, order)
            if value in steps:
                total -= _volume(facts, value, order)
            needs_old = False
            for reader in dependence.readers(value):
                if reader in self.nodes:
                    continue
                if _order_of(facts, reader) is not None:
                    # Composed with the order: nothing is left of the Transpose, or as much as before.
                    total += _moved(facts, reader) if _order_of(facts, reader) == order else 0
                else:
                    needs_old = True
            if needs_old:
                total -= _volume(facts, value, order) + NODE
        return total

    def _making(self, value: ir.Value, loop: Loop) -> ir.Node | None:
        """The node outside the region that makes a value in the body."""
        node = value.producer()
        return node if node is not None and node.graph is loop.body and node not in self.nodes else None


def _gained_within(facts: Facts, node: ir.Node, order: Order) -> int:
    """Elements that a node between two values of the region need not move any more; other nodes move none."""
    own = _order_of(facts, node)
    value = node.inputs[0]
    if own is None or value is None:
        return 0
    return _volume(facts, value, own) - _volume(facts, value, tuple(own[axis] for axis in order), start=order)


def _moved(facts: Facts, node: ir.Node) -> int:
    """What a Transpose costs; other nodes move nothing for their own sake."""
    order = _order_of(facts, node)
    # Of what it moves nothing may be known.
    return 0 if order is None else _volume(facts, node.outputs[0], _inverse(order)) + NODE


def _moved_after(facts: Facts, node: ir.Node, order: Order, value: ir.Value) -> int:
    """What bringing a made value into an order costs."""
    own = _order_of(facts, node)
    if own is None:
        return _volume(facts, value, order) + NODE
    return 0 if _inverse(own) == order else _moved(facts, node)


def _volume(facts: Facts, value: ir.Value, order: Order, start: Order | None = None) -> int:
    """The elements that a transposition moves: none when only axes of size 1 change places.

    Args:
        facts: what is known of the values.
        value: what is moved.
        order: its axes afterwards.
        start: its axes before, where these are in another order already.
    """
    shape = facts.shape(value)
    assert shape is not None
    before, after = ([axis for axis in axes if shape[axis] != 1] for axes in (start or sorted(order), order))
    return 0 if before == after else facts.elements(value)


def _regions(loop: Loop, dependence: Dependence) -> list[_Region]:
    facts = loop.facts
    parents: dict[ir.Value, ir.Value] = {}

    def root(value: ir.Value) -> ir.Value:
        while parents.setdefault(value, value) is not value:
            parents[value] = parents[parents[value]]
            value = parents[value]
        return value

    nodes = []
    for node in dependence.order:
        if not std.Elementwise.matches(node):
            continue
        rank = facts.rank(node.outputs[0])
        operands = [value for value in node.inputs if value is not None]
        if rank is None or rank < 2 or any(facts.rank(value) not in (rank, 0) for value in operands):
            continue
        nodes.append(node)
        for value in operands:
            if facts.rank(value) == rank:
                parents[root(value)] = root(node.outputs[0])
    for state in loop.states:
        if (facts.rank(state.parameter) or 0) >= 2:
            parents[root(state.parameter)] = root(state.update)
    regions: dict[ir.Value, _Region] = {}
    for value in list(parents):
        rank = facts.rank(value)
        if rank is None:
            continue
        region = regions.setdefault(root(value), _Region(rank))
        region.values[value] = None
    for node in nodes:
        regions[root(node.outputs[0])].nodes.add(node)
    for node in dependence.order:
        if _order_of(facts, node) is not None and {node.inputs[0], node.outputs[0]} <= parents.keys():
            source, target = (root(value) for value in (node.inputs[0], node.outputs[0]) if value is not None)
            if source is target and source in regions:
                regions[source].nodes.add(node)
    whole = [region for region in regions.values() if {facts.rank(value) for value in region.values} == {region.rank}]
    return [region for region in whole if len(region.values) > 1 or region.nodes]


def _order_of(facts: Facts, node: ir.Node) -> Order | None:
    """The order of axes that a Transpose makes."""
    transpose = std.Transpose.of(node, facts)
    return None if transpose is None else transpose.perm


def _inverse(order: Order) -> Order:
    """The order that leads back."""
    return tuple(order.index(axis) for axis in range(len(order)))


class _Writer:
    """Writes a region in another order of axes."""

    def __init__(self, loop: Loop, dependence: Dependence, region: _Region, order: Order) -> None:
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
        e, place = self.loop.inside(before=node), _inverse(self.order)
        operands = [self._operand(value) for value in node.inputs]
        match self.facts.view(node):
            case std.Transpose(perm=(*own,)):
                # The same move among axes that stand in another order.
                return e.again(node, operands, perm=[place[own[axis]] for axis in self.order]).outputs
        return e.again(node, operands).outputs

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
        first = self.before.move_axis(x.sequence, x.axis, 0, self.region.rank + 1)
        turned = self.before.transpose(first, (0, *(axis + 1 for axis in self.order)))
        self.turned[x.parameter] = self._described(self.loop.add_input(turned, reverse=x.reverse), x.parameter)

    def _operand(self, value: ir.Value | None) -> ir.Value | None:
        if value is None or value not in self.region.values:
            return value
        if value not in self.turned:
            # A value of an outer scope.
            self.turned[value] = self.before.transpose(value, self.order)
        return self.turned[value]

    def _bring(self, node: ir.Node, value: ir.Value) -> None:
        """Brings what another node makes into the order."""
        own = _order_of(self.facts, node)
        source = node.inputs[0] if node.inputs else None
        # Of a value of the region nothing is left that lies as it did.
        if own is not None and _inverse(own) == self.order and source is not None and source not in self.region.values:
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
            if _order_of(self.facts, reader) == self.order and reader.outputs[0] not in self.region.values:
                self.loop.substitute(reader.outputs[0], turned)
            elif reader is not turned.producer():
                kept.append(reader)
        if not kept or not self._is_replaced(value):
            return
        upright = self._behind(turned.producer()).transpose(turned, _inverse(self.order))
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
        upright = self.after.transpose(made.sequence, (0, *(axis + 1 for axis in _inverse(self.order))))
        sequence = self.after.move_axis(upright, 0, output.axis, self.region.rank + 1)
        self.loop.outputs.remove(output)
        replace(output.sequence, sequence, self.loop.space)

    def _carry(self, state: State) -> None:
        final = self._twin(state.final, "final")
        replace(state.final, self.after.transpose(final, _inverse(self.order)), self.loop.space)
        state.initial = self.before.transpose(state.initial, self.order)
        state.parameter, state.final = self.turned[state.parameter], final
        state.update = self.turned[state.update]
