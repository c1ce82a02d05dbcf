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

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.views.base import LoopPass
from lstm_lower.passes.loops.views.dependence import Dependence
from lstm_lower.passes.loops.views.loop import Loop
from lstm_lower.passes.loops.views.turning import Order, Region, Writer, inverse, order_of

# What a node costs besides the elements that it moves, in elements.
NODE = 256


class LayoutAssignment(LoopPass):
    """Chooses the axis order in regions of a loop body."""

    # What the body holds of its own, the same at every step, is transposed where it stands, outside.
    needs = (InvariantHoisting,)

    def rewrite(self, loop: Loop) -> bool:
        """Rewrites the first region that gains by it."""
        if not any(order_of(self.facts, node) is not None for node in loop.body):
            return False
        dependence = Dependence(loop)
        transposes = [node for node in dependence.order if order_of(self.facts, node) is not None]
        for region in _regions(loop, dependence):
            for order in region.wanted(self.facts, transposes):
                if region.gain(loop, dependence, order) > 0:
                    Writer(loop, dependence, region, order).write()
                    loop.commit()
                    return True
        return False


class _Region(Region):
    """A region, and what another order of its axes would be worth."""

    def wanted(self, facts: Facts, transposes: list[ir.Node]) -> list[Order]:
        """The orders that Transposes bring values of the region into, or bring them out of."""
        found: dict[Order, None] = {}
        for node in transposes:
            order = order_of(facts, node)
            assert order is not None
            if node in self.nodes:
                continue
            if len(order) == self.rank and node.inputs[0] in self.values:
                found[order] = None
            if node.outputs[0] in self.values:
                found[inverse(order)] = None
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
                if order_of(facts, reader) is not None:
                    # Composed with the order: nothing is left of the Transpose, or as much as before.
                    total += _moved(facts, reader) if order_of(facts, reader) == order else 0
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
    own = order_of(facts, node)
    value = node.inputs[0]
    if own is None or value is None:
        return 0
    return _volume(facts, value, own) - _volume(facts, value, tuple(own[axis] for axis in order), start=order)


def _moved(facts: Facts, node: ir.Node) -> int:
    """What a Transpose costs; other nodes move nothing for their own sake."""
    order = order_of(facts, node)
    # Of what it moves nothing may be known.
    return 0 if order is None else _volume(facts, node.outputs[0], inverse(order)) + NODE


def _moved_after(facts: Facts, node: ir.Node, order: Order, value: ir.Value) -> int:
    """What bringing a made value into an order costs."""
    own = order_of(facts, node)
    if own is None:
        return _volume(facts, value, order) + NODE
    return 0 if inverse(own) == order else _moved(facts, node)


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
        if order_of(facts, node) is not None and {node.inputs[0], node.outputs[0]} <= parents.keys():
            source, target = (root(value) for value in (node.inputs[0], node.outputs[0]) if value is not None)
            if source is target and source in regions:
                regions[source].nodes.add(node)
    whole = [region for region in regions.values() if {facts.rank(value) for value in region.values} == {region.rank}]
    return [region for region in whole if len(region.values) > 1 or region.nodes]
