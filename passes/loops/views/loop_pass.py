"""The form of a loop pass: an in-place pass that looks at one Scan at a time."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import ClassVar

import onnx_ir as ir

from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.passes.loops.views.loop import Loop, is_over_blocks, scans_of
from lstm_lower.passes.model_pass import Context, Pass
from lstm_lower.passes.tidy import UniqueNamesPass, verify_unique_names


class LoopPass(Pass):
    """A pass over the Scans of a model, inner loops before those that hold them.

    What holds after a pass is checked in its `ensures` if that can be seen from the model without doing the pass's work
    again. A pass that makes a loop better where its own measure says so promises no more than a valid model, in which
    names are unique.

    Attributes:
        needs: the passes whose postconditions it relies on; they run first.
        on_blocks: whether it looks at loops over blocks of steps, too, whose bodies are surroundings of loops.
    """

    preserves = True
    needs: ClassVar[tuple[type[LoopPass], ...]] = ()
    on_blocks: ClassVar[bool] = False

    def __init__(self, context: Context | None = None) -> None:
        self._shared = context

    @property
    def facts(self) -> Facts:
        """What is known of the model's values while this call runs."""
        return self.context.space.facts

    def refuse(self, where: ir.Node | ir.Value | str, reason: str) -> None:
        """Records why a candidate is left alone."""
        self.context.trace.refuse(self.name, where, reason)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs the pass on every loop of the model, where it has not left the model as it is alone already."""
        context, kind = self.context, type(self)
        if context.settled.get(kind) == context.changes:
            return ir.passes.PassResult(model, modified=False)
        # Nodes move between graphs; in a pipeline names are unique already.
        modified = self._shared is None and UniqueNamesPass().share(context)(model).modified
        for need in self.needs:
            modified |= need(context)(model).modified
        modified |= self.run(model)
        if not modified:
            context.settled[kind] = context.changes
        return ir.passes.PassResult(model, modified=modified)

    def ensures(self, model: ir.Model) -> None:
        """Names are still unique, and nothing is as the pass promises that it is not.

        Raises:
            ir.passes.PostconditionError: a name occurs twice, or something is.
        """
        verify_unique_names(model)
        for node, what in self.faults(model):
            label = f"{node.op_type} '{node_label(node)}'"
            raise ir.passes.PostconditionError(f"{self.name}: {label} requires {what}")

    def faults(self, model: ir.Model) -> Iterable[tuple[ir.Node, str]]:  # noqa: ARG002
        """Nodes for which something does not hold that the pass promises, and what each requires."""
        return ()

    def run(self, model: ir.Model) -> bool:
        """Runs on every loop; returns whether something changed."""
        modified = False
        for node in scans_of(model.graph):
            if node.graph is None or (is_over_blocks(node) and not self.on_blocks):
                continue
            # Inner loops that were rewritten have left work in the bodies around them.
            for need in self.needs if modified else ():
                step = need(self.context)
                step.context = self.context
                step.rewrite(Loop(node, self.context.space))
            modified |= self.rewrite(Loop(node, self.context.space))
        return modified

    @abc.abstractmethod
    def rewrite(self, loop: Loop) -> bool:
        """Rewrites one loop; returns whether something changed."""


class OnGraphs(abc.ABC):
    """Makes a loop pass one on all of a graph's nodes, at every nesting level.

    A base class to put before `LoopPass`.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrites the whole model."""
        return self.graph(model.graph)

    def rewrite(self, loop: Loop) -> bool:
        """Rewrites one loop's body."""
        return self.graph(loop.body)

    @abc.abstractmethod
    def graph(self, graph: ir.Graph) -> bool:
        """Rewrites a graph and its subgraphs; returns whether something changed."""


def graphs_with_loops(model: ir.Model) -> list[ir.Graph]:
    """The graphs that hold a Scan."""
    graphs = dict.fromkeys(node.graph for node in scans_of(model.graph))
    return [graph for graph in graphs if graph is not None]
