"""Algebraic simplification: zeros and ones vanish, chains of layout changes shorten, constants fold.

Precondition: nodes in topological order. Every rule keeps the result's shape, and keeps infinities and NaN: a product
with zeros is zero only where the other factor surely is finite.

Postcondition: none of the rules applies to any node, what the rules emit included, but that one loop's simplification
may allow another's. Takes time linear in the number of nodes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import END, Emitter
from lstm_lower.graph.standard.base import constant_of
from lstm_lower.graph.subgraphs import subgraphs_of

# They register their rules.
from lstm_lower.passes.loops import simplify_algebra as _algebra  # noqa: F401
from lstm_lower.passes.loops import simplify_moves as _moves  # noqa: F401
from lstm_lower.passes.loops.views.base import LoopPass
from lstm_lower.passes.loops.views.loop import Loop, is_scan
from lstm_lower.passes.loops.views.simplifies import simplifies


class AlgebraicSimplification(LoopPass):
    """Algebraic simplification and constant folding of the whole model, loop bodies included."""

    one_walk = True

    def run(self, model: ir.Model) -> bool:
        """Simplifies the model."""
        return self._graph(model.graph)

    def rewrite(self, loop: Loop) -> bool:
        """Simplifies one loop's body."""
        return self._graph(loop.body)

    def _graph(self, graph: ir.Graph) -> bool:
        modified = False
        for node in graph:
            if node.graph is None:
                continue
            if std.ControlFlow.matches(node):
                if is_scan(node):
                    modified |= self._parameter_shapes(Loop(node, self.context.space))
                for subgraph in subgraphs_of(node):
                    modified |= self._graph(subgraph)
            modified |= self._node(graph, node)
        return modified

    def _node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Simplifies a node, and then what the rules put in its place; the graph's walk has passed that by."""
        waiting, modified = [node], False
        for current in waiting:
            if current.graph is not None and (emitted := self._apply(graph, current)) is not None:
                waiting += emitted
                modified = True
        return modified

    def _apply(self, graph: ir.Graph, node: ir.Node) -> list[ir.Node] | None:
        """Puts something simpler in a node's place; what was emitted for that, `None` where nothing is simpler."""
        view = self.facts.view(node)
        if view is None or len(node.outputs) != 1:
            return None
        e = Emitter(self.context.space, graph, before=node, scope=node.name or "simplified")
        replacement = self._constant(view, e)
        rule = simplifies.of(type(view))
        if replacement is None and rule is not None:
            replacement = rule(view, e)
        if replacement is None or replacement is view.output:
            return None
        e.replace(view.output, replacement)
        detach(node)
        return e.emitted

    def _constant(self, view: std.Standard, e: Emitter) -> ir.Value | None:
        """A constant in a node's place, where its value is known."""
        array = self.facts.constant(view.output)
        if array is None or isinstance(view, std.Constant):
            return None
        known = constant_of(view.output)
        if known is not None and np.array_equal(known, array):
            return None
        return e.constant(array, self.facts.dtype(view.output) or ir.DataType.from_numpy(array.dtype))

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
