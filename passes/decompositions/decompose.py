"""The pass that writes operators as formulas of simpler ones."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from lstm_lower.graph.builder import Builder
from lstm_lower.passes.decompositions import decomposes
from lstm_lower.passes.decompositions.functions import expanded
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.rewriting import Results, Rewriting


class DecomposePass(Rewriting, Pass):
    """Replaces nodes of ONNX's own operators by their decompositions, in subgraphs too.

    Where no decomposition is registered, it is the function of simpler operators by which onnx defines some.

    Precondition: functions are inlined; what a decomposition emits depends on dtypes, which they do not tell.

    Attributes:
        wanted: which nodes; also asked of those that decompositions are made of.
    """

    preserves = True

    def __init__(self, wanted: Callable[[ir.Node], bool]) -> None:
        super().__init__()
        self.wanted = wanted

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Decomposes.

        Raises:
            InvalidModelError: a node contradicts its operator's definition.
        """
        # More follows from what decompositions are made of than from what is declared of their nodes.
        self.space.facts.look_again()
        return ir.passes.PassResult(model, modified=self.graph(model.graph))

    def where(self, node: ir.Node) -> bool:
        """Whether a node is one of ONNX's own, and wanted."""
        return node.domain == "" and self.wanted(node)

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """Emits what stands for a node; `None` where nothing is known that could."""
        return decomposition(node, builder)


def decomposition(node: ir.Node, builder: Builder) -> Results | None:
    """Emits what stands for a node; `None` where nothing is known that could."""
    view = builder.facts.view(node)
    rule = None if view is None else decomposes.of(type(view))
    return expanded(node, builder.opset, builder) if rule is None else rule(view, builder)
