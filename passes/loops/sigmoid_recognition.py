"""Sigmoid recognition: in a loop `1 / (1 + exp(-x))` becomes the operator, where the difference cannot show.

onnxruntime's Sigmoid has an absolute error of about 1e-8 and is 0 from -18.5 down: a logarithm of it is infinite where
that of the formula is not. Of what only scales, adds and moves elements, as the gates of recurrent cells do, the
error stays as small as it is.

Precondition: the formula is in a loop's body, and all that reads it, there and behind the loop, multiplies, adds, or
moves elements.

Postcondition: a Sigmoid takes its place.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.passes.loops.views.loop_pass import LoopPass, OnGraphs
from lstm_lower.passes.patterns import AnyValue, applied, match

# What an error of an operand comes out of no larger, but for a factor.
_MOVING = std.Moving | std.Identity | std.Concat
_SCALING = std.Mul | std.MatMul | std.Gemm | std.Add | std.Sub | std.ReduceSum | std.ReduceMean | std.Shape


_X = AnyValue("x")
_EXP, _RECIPROCAL = applied(std.Exp), applied(std.Reciprocal)
_LOGISTIC = (_RECIPROCAL(1 + _EXP(-_X)), 1 / (1 + _EXP(-_X)))


class SigmoidRecognition(OnGraphs, LoopPass):
    """Replaces written-out logistic functions by Sigmoid."""

    def run(self, model: ir.Model) -> bool:
        """Recognises those of every loop's body."""
        self._holders = {inner: node for node in all_nodes(model.graph) for inner in subgraphs_of(node)}
        changed = [self.graph(graph) for graph in self._holders]
        self._holders = {}
        return any(changed)

    def graph(self, graph: ir.Graph) -> bool:
        """Recognises those of one body."""
        modified = False
        for node in list(graph):
            operand = self._logistic(node)
            if operand is None:
                continue
            if not self._only_scaled(node.outputs[0], set()):
                self.refuse(node, "its readers may depend on how the formula differs from onnxruntime's Sigmoid")
                continue
            e = Builder(self.context.space, graph, before=node, scope=node.name or std.Sigmoid.op_type)
            replace(node.outputs[0], e.op(std.Sigmoid, operand), self.context.space)
            modified = True
        return modified

    def _logistic(self, node: ir.Node) -> ir.Value | None:
        """The x of a `1 / (1 + exp(-x))` that a node ends."""
        bound = next((found for form in _LOGISTIC if (found := match(form, node.outputs[0], self.facts))), None)
        return None if bound is None else bound[_X]

    def _only_scaled(self, value: ir.Value, seen: set[ir.Value]) -> bool:
        """Whether all that reads a value multiplies, adds or moves elements."""
        if value in seen:
            return True
        seen.add(value)
        behind: list[ir.Value] = []
        for reader, position in value.uses():
            view = self.facts.view(reader)
            if isinstance(view, std.Loop | std.Scan):
                behind.append(view.body.inputs[position])
            elif isinstance(view, _MOVING) or (isinstance(view, std.Where) and position):
                behind += reader.outputs
            elif not isinstance(view, _SCALING):
                return False
        if value.is_graph_output():
            left = self._left(value)
            if not left:
                return False
            behind += left
        return all(self._only_scaled(other, seen) for other in behind)

    def _left(self, value: ir.Value) -> list[ir.Value]:
        """What a body's output becomes: behind the loop, and in the next step; nothing for an output of the model."""
        graph = value.graph
        node = None if graph is None else self._holders.get(graph)
        view = self.facts.view(node)
        if node is None or graph is None:
            return []
        skipped = 1 if isinstance(view, std.Loop) else 0
        states = len(view.carried) if isinstance(view, std.Loop) else view.states if isinstance(view, std.Scan) else 0
        found = []
        for place, output in enumerate(graph.outputs):
            if output is value and place >= skipped:
                found.append(node.outputs[place - skipped])
                if place - skipped < states:
                    found.append(graph.inputs[place + skipped])
        return found
