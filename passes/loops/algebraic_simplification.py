"""Algebraic simplification: zeros and ones vanish, chains of layout changes shorten, constants fold.

Precondition: nodes in topological order. Every rule keeps the result's shape, and keeps infinities and NaN: a product
with zeros is zero only where the other factor surely is finite.

Postcondition: none of the rules applies to any node, what the rules emit included, but that one loop's simplification
may allow another's. Takes time linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder
from lstm_lower.graph.edit import detach
from lstm_lower.passes.branches import chosen_branch
from lstm_lower.passes.loops.simplifications import PATTERNS, narrowed
from lstm_lower.passes.loops.views.loop import Loop, is_scan
from lstm_lower.passes.loops.views.loop_pass import LoopPass, OnGraphs
from lstm_lower.passes.patterns import by_operator
from lstm_lower.passes.rewriting import Results, Rewriting, simplifies

simplifies(std.If)(chosen_branch)
_PATTERNS = by_operator(PATTERNS)
# How many nodes back rules look, but for chains of which nothing but facts counts.
FARTHEST = 4


class AlgebraicSimplification(Rewriting, OnGraphs, LoopPass):
    """Algebraic simplification and constant folding of the whole model, loop bodies included."""

    tells = True
    shares_constants = False

    def run(self, model: ir.Model) -> bool:
        """Simplifies the whole model."""
        # How far behind a value the change of what makes it counts.
        self._near: dict[ir.Value | None, int] = {}
        return super().run(model)

    def node(self, node: ir.Node, builder: Builder, replaced: list[ir.Node]) -> bool:
        """Simplifies a node and its subgraphs."""
        # Most nodes have no attributes at all.
        shaped = bool(node.attributes.data) and is_scan(node) and self._parameter_shapes(Loop(node, self.space))
        return super().node(node, builder, replaced) or shaped

    def where(self, node: ir.Node) -> bool:
        """Whether a node is known as a constant, or one that rules are registered for."""
        facts = self.facts
        view = facts.view(node)
        if view is None or isinstance(view, std.Constant):
            return False
        changed = self._has_changed(node, facts.asked)
        if isinstance(view, std.Identity):
            # It depends on what is an output, too. One makes a body's output of what stands outside; code motion would
            # put it in a constant's place again.
            return not view.output.is_graph_output() or view.data.graph is node.graph
        return changed and (
            isinstance(view, std.Elementwise)
            or simplifies.of(type(view)) is not None
            or facts.constant(view.output) is not None
        )

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """Emits something simpler."""
        facts = builder.facts
        view = facts.view(node)
        assert view is not None
        array = facts.constant(view.output) if len(node.outputs) == 1 else None
        if array is not None:
            return builder.constant(array, facts.dtype(view.output) or ir.DataType.from_numpy(array.dtype))
        patterns = _PATTERNS.get(type(view), ())
        numbers = set(map(facts.uniform, node.inputs)) if patterns else set()
        for pattern in patterns:
            if pattern.numbers <= numbers and (simpler := pattern(view, builder)) is not None:
                return simpler
        rule = simplifies.of(type(view))
        results = None if rule is None else rule(view, builder)
        return narrowed(view, builder) if results is None and isinstance(view, std.Elementwise) else results

    def _has_changed(self, node: ir.Node, asked: dict[ir.Node, Sequence[ir.Value | None]]) -> bool:
        """Whether a node, or what leads to it as far as rules look back, has changed since rules were asked of it."""
        near = self._near
        if asked.get(node) is node.inputs:
            distance = max([near.get(value, 0) for value in node.inputs], default=0) if near else 0
        else:
            asked[node], distance = node.inputs, FARTHEST
        for value in node.outputs if distance > 1 else ():
            near[value] = distance - 1
        return distance > 0

    def _parameter_shapes(self, loop: Loop) -> bool:
        """The shape of a state or of an element follows from outside: it is the same at every step."""
        modified = False
        sources: list[tuple[ir.Value, ir.Value, int | None]] = [
            *((state.parameter, state.initial, None) for state in loop.states),
            *((x.parameter, x.sequence, x.axis) for x in loop.inputs),
        ]
        for parameter, outer, axis in sources:
            rank = self.facts.rank(parameter)
            if axis is not None and rank is None:
                continue
            for node, _ in list(parameter.uses()):
                if not std.Shape.matches(node) or node.graph is not loop.body:
                    continue
                if node.outputs[0].is_graph_output():
                    continue
                e = loop.before("shape")
                shape = e.op(std.Shape, outer)
                if axis is not None and rank is not None:
                    kept = [index for index in range(rank + 1) if index != axis % (rank + 1)]
                    shape = e.op(std.Gather, shape, e.ints(*kept), axis=0)
                bounds = std.Shape(node, self.facts).bounds
                if bounds != slice(0, None):
                    shape = e.slice(shape, bounds.start, END if bounds.stop is None else bounds.stop, 0)
                loop.substitute(node.outputs[0], shape)
                detach(node)
                modified = True
        return modified
