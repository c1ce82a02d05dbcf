"""Sequences of matrices, transposed where that costs least: behind what makes them, or in front of it.

`x @ w + b` transposed is `w' @ x' + b'`, which transposes the narrower `x`; joined or cut sequences are joined or cut
after their parts were transposed; what was just transposed is there as it was.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.facts import Facts

# Time stays first, the axes of the matrices change places.
TURN = (0, 2, 1)
RANK = 3
# Elements of an axis of which nothing is known.
ASSUMED = 32


class TurnedSequences:
    """Costs and code of transposed sequences of one graph.

    Attributes:
        facts: what is known of the model's values.
        there: sequences whose transpose will be there at no cost.
        rebuilt: sequences of those asked for that are made anew of transposed parts.
    """

    def __init__(self, facts: Facts, there: AbstractSet[ir.Value] = frozenset()) -> None:
        self.facts = facts
        self.there = there
        self.rebuilt: set[ir.Value] = set()
        self._costs: dict[ir.Value, int] = {}

    def cost(self, value: ir.Value) -> int:
        """The elements per step that are moved for the transpose of a sequence."""
        if value not in self._costs:
            self._costs[value] = 0 if value in self.there else self._cheaper(value)
        return self._costs[value]

    def write(self, e: Builder, value: ir.Value) -> ir.Value:
        """Emits the transpose."""
        view = self.facts.maker(value)
        if isinstance(view, std.Transpose) and view.perm == TURN:
            return view.data
        parts = self._parts(value)
        if view is None or parts is None or self._sum(parts) >= step_elements(self.facts, value):
            return e.transpose(value, TURN)
        turned = iter([self.write(e, part) for part in parts])
        if isinstance(view, std.MatMul):
            return e.op(std.MatMul, e.transpose(view.b, (1, 0)), next(turned))
        spread = isinstance(view, std.Elementwise)
        operands = [next(turned) if x in parts else self._spread(e, x) if spread else x for x in view.node.inputs]
        changed = {"axis": TURN[view.axis]} if isinstance(view, std.Concat) and view.axis else {}
        made = e.again(view.node, operands, **changed).outputs[view.node.outputs.index(value)]
        shape = self.facts.shape(value)
        return made if shape is None else e.set_shape(made, [shape[axis] for axis in TURN])

    def _cheaper(self, value: ir.Value) -> int:
        view = self.facts.maker(value)
        if isinstance(view, std.Transpose) and view.perm == TURN:
            return 0
        parts, own = self._parts(value), step_elements(self.facts, value)
        if parts is None or (of_parts := self._sum(parts)) >= own:
            return own
        self.rebuilt.add(value)
        return of_parts

    def _sum(self, parts: list[ir.Value]) -> int:
        return sum(self.cost(part) for part in parts)

    def _parts(self, value: ir.Value) -> list[ir.Value] | None:
        """The sequences that a sequence can be made of as well when they are transposed; `None` where it cannot."""
        view, rank = self.facts.maker(value), self.facts.rank
        # Others read what was computed once.
        lone = len(value.uses()) == 1 and not value.is_graph_output()
        match view:
            case std.Elementwise(node=node) if lone:
                operands = [x for x in node.inputs if x is not None]
                parts = [x for x in operands if rank(x) == RANK]
                # A vector is spread along the last axis.
                return parts if parts and all(rank(x) in (0, 1, RANK) for x in operands) else None
            case std.MatMul(a=a, b=b) if lone and rank(a) == RANK and rank(b) == RANK - 1:
                return [a]
            case std.Concat(axis=int(), parts=joined):
                return list(joined)
            case std.Slice(axes=(0,), data=data) if rank(value) == RANK:
                return [data]
        return None

    def _spread(self, e: Builder, value: ir.Value | None) -> ir.Value | None:
        return e.unsqueeze(value, 1) if value is not None and self.facts.rank(value) == 1 else value


def step_elements(facts: Facts, value: ir.Value) -> int:
    """The elements that a transposition moves of a matrix, or of one step of a sequence of matrices."""
    rows, columns = (dim if isinstance(dim, int) else ASSUMED for dim in (facts.shape(value) or (None, None))[-2:])
    # An axis of size 1 changes places at no cost.
    return 0 if 1 in (rows, columns) else rows * columns
