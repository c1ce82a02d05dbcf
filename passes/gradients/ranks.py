"""States ranks that follow from what reads a value."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass


class DemandedRanksPass(Pass):
    """States the rank of a value that an operator demands of it, where nothing before it tells.

    Shapes are inferred from a node's operands to its results. What a Reshape to a shape of run time makes has no known
    rank, but a pooling with a window of two axes that reads it says that there are four.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Tells the facts."""
        facts, modified = self.context.space.facts, False
        for node in all_nodes(model.graph):
            view = facts.view(node)
            rank = None if view is None else view.demanded_rank
            operand = None if view is None or rank is None else view.operand(0)
            if rank is not None and operand is not None and facts.rank(operand) is None:
                facts.tell(operand, [None] * rank)
                modified = True
        if modified:
            facts.look_again()
        return ir.passes.PassResult(model, modified)
