"""Algebraic simplification: zeros and ones vanish, chains of layout changes shorten, constants fold.

Precondition: nodes in topological order. Every rule keeps the result's shape, and keeps infinities and NaN: a product
with zeros is zero only where the other factor surely is finite.

Postcondition: none of the rules applies to any node, what the rules emit included, but that one loop's simplification
may allow another's. Takes time linear in the number of nodes.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import END, Emitter
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.branches import choose_branch

# They register their rules.
from lstm_lower.passes.loops import simplify_algebra as _algebra  # noqa: F401
from lstm_lower.passes.loops import simplify_moves as _moves  # noqa: F401
from lstm_lower.passes.loops.simplify_broadcasts import narrowed
from lstm_lower.passes.loops.views.base import LoopPass, OnGraphs
from lstm_lower.passes.loops.views.loop import Loop, is_scan
from lstm_lower.passes.loops.views.simplifies import simplifies


class AlgebraicSimplification(OnGraphs, LoopPass):
    """Algebraic simplification and constant folding of the whole model, loop bodies included."""

    one_walk = True

    def graph(self, graph: ir.Graph) -> bool:
        """Simplifies a graph and its subgraphs."""
        modified = False
        e = Emitter(self.context.space, graph)
        for node in graph:
            if node.graph is None:
                continue
            if inner := subgraphs_of(node):
                if is_scan(node):
                    modified |= self._parameter_shapes(Loop(node, self.context.space))
                for subgraph in inner:
                    modified |= self.graph(subgraph)
                if std.If.matches(node) and choose_branch(e, node):
                    modified = True
                    continue
            modified |= self._node(e, node)
        return modified

    def _node(self, e: Emitter, node: ir.Node) -> bool:
        """Simplifies a node, and then what the rules put in its place; the graph's walk has passed that by."""
        waiting = self._apply(e, node)
        if waiting is None:
            return False
        for current in waiting:
            if current.graph is not None and (emitted := self._apply(e, current)) is not None:
                waiting += emitted
        return True

    def _apply(self, e: Emitter, node: ir.Node) -> list[ir.Node] | None:
        """Puts something simpler in a node's place; what was emitted for that, `None` where nothing is simpler."""
        facts = e.facts
        view = facts.view(node)
        if view is None or isinstance(view, std.Constant) or len(node.outputs) != 1:
            return None
        if isinstance(view, std.Identity) and view.output.is_graph_output() and view.data.graph is not node.graph:
            # It makes a body's output of what stands outside. Code motion would put it in a constant's place again.
            return None
        array, rule = facts.constant(view.output), simplifies.of(type(view))
        elementwise = view if isinstance(view, std.Elementwise) else None
        if array is None and rule is None and elementwise is None:
            return None
        e.go_before(node, node.name or "simplified")
        replacement: ir.Value | None = None
        if array is not None:
            replacement = e.constant(array, facts.dtype(view.output) or ir.DataType.from_numpy(array.dtype))
        else:
            replacement = rule(view, e) if rule is not None else None
            if replacement is None and elementwise is not None:
                replacement = narrowed(elementwise, e)
        if replacement is None or replacement is view.output:
            return None
        e.replace(view.output, replacement)
        detach(node)
        return e.emitted

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
