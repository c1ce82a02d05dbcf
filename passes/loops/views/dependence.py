"""What a loop's values depend on: the carried state, the step, or neither.

Passes ask it and never change it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import operands
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.loops.views.loop import Loop


class Level(enum.IntEnum):
    """How often a value changes."""

    INVARIANT = 0  # the same at every step
    STEP = 1  # follows from the step's elements of the sequences
    CARRIED = 2  # needs the step before


def is_pure(node: ir.Node) -> bool:
    """Whether a node gives the same results whenever and however often it runs."""
    if node.domain != "" or std.Random.matches(node):
        return False
    # A loop for what every pass asks of every node; most have no subgraphs.
    for subgraph in subgraphs_of(node):
        for inner in subgraph:
            if not is_pure(inner):
                return False
    return True


class Dependence:
    """The dependences among the nodes of a loop's body.

    Attributes:
        order: the body's nodes.
        levels: level of every value that the body holds; values of outer scopes are invariant.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.order: list[ir.Node] = list(loop.body)
        self.levels: dict[ir.Value, Level] = {x.parameter: Level.STEP for x in loop.inputs}
        self.levels.update((state.parameter, Level.CARRIED) for state in loop.states)
        self._operands: dict[ir.Node, list[ir.Value]] = {}
        self._readers: dict[ir.Value, list[ir.Node]] = {}
        self._node_levels: dict[ir.Node, Level] = {}
        levels, readers = self.levels, self._readers
        for node in self.order:
            level = Level.INVARIANT if is_pure(node) else Level.CARRIED
            self._operands[node] = read = operands(node)
            for value in read:
                if value in readers:
                    readers[value].append(node)
                else:
                    readers[value] = [node]
                if (other := levels.get(value)) is not None and other > level:
                    level = other
            self._node_levels[node] = level
            for output in node.outputs:
                levels[output] = level

    def level(self, value: ir.Value | None) -> Level:
        """The level of a value; absent operands are invariant."""
        return Level.INVARIANT if value is None else self.levels.get(value, Level.INVARIANT)

    def is_outside(self, value: ir.Value | None) -> bool:
        """Whether a value is made outside of the body."""
        return value is not None and value not in self.levels

    def is_step(self, value: ir.Value) -> bool:
        """Whether a value of the body follows from the step's elements alone."""
        return self.levels.get(value) == Level.STEP

    def node_level(self, node: ir.Node) -> Level:
        """The level of a node's results."""
        return self._node_levels[node]

    def operands(self, node: ir.Node) -> list[ir.Value]:
        """What a node of the body reads, captures of its subgraphs included."""
        return self._operands[node]

    def readers(self, value: ir.Value) -> list[ir.Node]:
        """Nodes of the body that read a value, also those whose subgraphs do."""
        return self._readers.get(value, [])

    def needed_by(self, values: Iterable[ir.Value]) -> set[ir.Node]:
        """Nodes of the body that values are computed by, directly or through others."""
        found: set[ir.Node] = set()
        waiting = [value.producer() for value in values]
        while waiting:
            node = waiting.pop()
            if node is not None and node in self._operands and node not in found:
                found.add(node)
                waiting += [value.producer() for value in self._operands[node]]
        return found

    def recurrent(self) -> set[ir.Node]:
        """Nodes that the next step needs: those that updates of states are computed by."""
        return self.needed_by(state.update for state in self.loop.states)
