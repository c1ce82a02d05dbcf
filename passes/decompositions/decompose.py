"""The pass that writes operators as formulas of simpler ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import Constants
from lstm_lower.graph.expressions import Builder, Expr
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.passes.base import Pass
from lstm_lower.passes.decompositions import decomposes
from lstm_lower.passes.decompositions.functions import expanded


class DecomposePass(Pass):
    """Replaces nodes of ONNX's own operators by their decompositions, in subgraphs too.

    Where no decomposition is registered, it is the function of simpler operators by which onnx defines some.

    Precondition: functions are inlined; what a decomposition emits depends on dtypes, which they do not tell.

    Attributes:
        where: which nodes; also asked of those that decompositions are made of.
    """

    preserves = True

    def __init__(self, where: Callable[[ir.Node], bool]) -> None:
        super().__init__()
        self.where = where

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Decomposes.

        Raises:
            InvalidModelError: a node contradicts its operator's definition.
        """
        space = self.context.space
        # More follows from what decompositions are made of than from what is declared of their nodes.
        space.facts.look_again()
        constants: dict[ir.Graph, Constants] = {}
        waiting = list(all_nodes(model.graph))
        modified = False
        while waiting:
            node = waiting.pop()
            graph = node.graph
            # What a decomposition emits and nothing reads is in no graph any more.
            if node.domain != "" or graph is None or not self.where(node):
                continue
            builder = Builder.before(node, space, constants.setdefault(graph, Constants(graph)))
            results = self.formula(node, builder)
            if results is None:
                continue
            for old, new in zip(node.outputs, results, strict=False):
                if new is not None and (old.uses() or old.is_graph_output()):
                    builder.emitter.replace(old, new.value)
            detach(node)
            builder.emitter.discard_unread()
            for made in builder.nodes:
                waiting += [made, *(inner for subgraph in subgraphs_of(made) for inner in all_nodes(subgraph))]
            modified = True
        return ir.passes.PassResult(model, modified=modified)

    def formula(self, node: ir.Node, builder: Builder) -> Sequence[Expr | None] | None:
        """Emits what stands for a node; `None` where nothing is known that could."""
        return decomposition(node, builder)


def decomposition(node: ir.Node, builder: Builder) -> Sequence[Expr | None] | None:
    """Emits what stands for a node; `None` where nothing is known that could."""
    view = builder.facts.view(node)
    rule = None if view is None else decomposes.of(type(view))
    return expanded(node, builder.opset, builder) if rule is None else rule(view, builder)
