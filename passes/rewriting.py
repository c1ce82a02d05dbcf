"""Rewriting node by node: the form of a rule, and the one walk that asks rules of every node.

A rule is a formula. It gets a node's view and a builder that emits right before the node, and returns what takes the
place of the node's outputs, or `None` where it has nothing to say of the node. Decompositions, a target's formulas,
simplifications, and lowering are such rules; those of gradients get what flows into the outputs besides.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Constants, Expr, Workspace, replace
from lstm_lower.graph.edit import end_reading
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.model_pass import Context

# The only output, or the outputs in order; an output that nothing reads may be `None`.
Results = Expr | ir.Value | Sequence[Expr | ir.Value | None]
Rule = Callable[[Any, Builder], Results | None]

# An operator as a formula of simpler ones, in their newest forms. An output that the node does not have may be `None`.
decomposes: std.Facet[Rule] = std.Facet("decomposition")
# What may replace an operator's result; `None` where nothing simpler is known.
simplifies: std.Facet[Rule] = std.Facet("simplification")


class Rewriting(abc.ABC):
    """Makes a pass one that puts formulas in the place of nodes, at every nesting level, until no rule has any.

    A base class to put before `Pass` or `LoopPass`. Bodies and branches are walked before the nodes that hold them; of
    what a rule emits, rules are asked next. Takes time linear in the number of nodes and of emitted ones.

    Attributes:
        context: the pass's own.
        shares_constants: whether equal constants stand once, at their graph's start, or where a formula has them.
    """

    context: Context
    shares_constants: ClassVar[bool] = True

    @property
    def space(self) -> Workspace:
        """The shared state of all that works on the model."""
        return self.context.space

    @abc.abstractmethod
    def where(self, node: ir.Node) -> bool:
        """Whether rules are to be asked of a node."""

    @abc.abstractmethod
    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """Emits what stands for a node; `None` where it stays."""

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Puts what a formula made in the place of a node's output."""
        replace(old, new, self.space)

    def graph(self, graph: ir.Graph) -> bool:
        """Rewrites the nodes of a graph and of those within it; returns whether something changed."""
        constants = Constants(graph) if self.shares_constants else None
        builder = Builder(self.space, graph, constants=constants)
        modified = False
        replaced: list[ir.Node] = []
        for node in graph:
            modified |= self.node(node, builder, replaced)
        graph.remove(replaced)
        return modified

    def node(self, node: ir.Node, builder: Builder, replaced: list[ir.Node]) -> bool:
        """Rewrites a node of the builder's graph, and what comes in its place.

        Args:
            node: the node.
            builder: the graph's builder.
            replaced: collects the nodes that read nothing any more and are to be removed. That is left to the caller:
                in each removal onnx_ir looks through all outputs of the graph.

        Returns:
            Whether something changed.
        """
        modified, waiting = False, [node]
        for current in waiting:
            for inner in subgraphs_of(current):
                modified |= self.graph(inner)
            # What a formula emitted and nothing reads is in no graph any more.
            if current.graph is not None and self.where(current) and self._apply(current, builder):
                replaced.append(current)
                waiting += builder.emitted
                modified = True
        return modified

    def _apply(self, node: ir.Node, builder: Builder) -> bool:
        builder.go_before(node, node.name or node.op_type)
        results = self.formula(node, builder)
        if results is not None:
            for old, new in zip(node.outputs, values_of(results), strict=False):
                if new is not None and (old.uses() or old.is_graph_output()):
                    self.replace(old, new)
            end_reading(node)
        builder.discard_unread()
        return results is not None


def values_of(results: Results) -> list[ir.Value | None]:
    """The results of a rule, as values in the order of the node's outputs.

    Raises:
        TypeError: it is no result.
    """
    if not isinstance(results, Expr | ir.Value | Sequence):
        raise TypeError(f"a rule returns a value, or values in order, got {type(results).__name__}")
    listed = results if isinstance(results, Sequence) else [results]
    return [result.value if isinstance(result, Expr) else result for result in listed]
