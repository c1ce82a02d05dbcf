"""States ranks that follow from what reads a value."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.model_pass import Pass


class DemandedRanksPass(Pass):
    """States the rank of a value that an operator demands of it, where nothing before it tells.

    Shapes are inferred from a node's operands to its results. What a Reshape to a shape of run time makes has no known
    rank, but a pooling with a window of two axes that reads it says that there are four.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Tells the facts."""
        facts, modified = self.context.space.facts, False
        for node, running in _nodes(model.graph, frozenset()):
            view = facts.view(node)
            rank = None if view is None else view.demanded_rank
            operand = None if view is None or rank is None else view.operand(0)
            if rank is not None and operand is not None and facts.rank(operand) is None and operand.graph in running:
                facts.tell(operand, [None] * rank)
                modified = True
        if modified:
            facts.look_again()
        return ir.passes.PassResult(model, modified)


def _nodes(graph: ir.Graph, around: frozenset[ir.Graph]) -> Iterator[tuple[ir.Node, frozenset[ir.Graph]]]:
    """The nodes at every level, each with the graphs that never run without it."""
    running = around | {graph}
    for node in graph:
        yield node, running
        for inner in subgraphs_of(node):
            # A branch need not run, nor the body of a Loop.
            yield from _nodes(inner, running if std.Scan.matches(node) else frozenset())
