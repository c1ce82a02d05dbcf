"""The form of a loop pass: an in-place pass that looks at one Scan at a time."""

from __future__ import annotations

import abc
import dataclasses

import onnx_ir as ir

from lstm_lower.graph.emit import Workspace
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.names import Names
from lstm_lower.passes.base import Pass
from lstm_lower.passes.loops.views.loop import Loop, scans_of
from lstm_lower.passes.tidy import UniqueNamesPass, verify_unique_names
from lstm_lower.passes.trace import Trace


@dataclasses.dataclass
class Context:
    """What passes on one model share.

    Attributes:
        space: names, facts and version of the model.
        trace: where changes and refusals are recorded.
    """

    space: Workspace
    trace: Trace

    @classmethod
    def of(cls, model: ir.Model, trace: Trace | None = None) -> Context:
        """The context of a model."""
        return cls(Workspace.of(model), trace if trace is not None else Trace())

    @property
    def names(self) -> Names:
        """Gives out unique names; one for the whole model."""
        return self.space.names

    @property
    def opset(self) -> int:
        """The model's version of `ai.onnx`."""
        return self.space.opset


class LoopPass(Pass):
    """A pass over the Scans of a model, inner loops before those that hold them.

    Used alone, a pass makes a context of its own for each call; a pipeline gives all its passes one.

    What holds after a pass stands in its `ensures` where that can be told from the model without doing the pass's work
    again. A pass that makes a loop better where its own measure says so promises no more than a valid model, in which
    names are unique.

    Attributes:
        one_walk: whether one run on a graph without subgraphs leaves nothing for a second one.
    """

    one_walk: bool = False

    def __init__(self, context: Context | None = None) -> None:
        self._given = context
        self._context: Context | None = context

    @property
    def context(self) -> Context:
        """The context of the running call."""
        assert self._context is not None
        return self._context

    @property
    def facts(self) -> Facts:
        """What is known of the model's values while this call runs."""
        return self.context.space.facts

    def refuse(self, where: ir.Node | ir.Value | str, reason: str) -> None:
        """Records why a candidate is left alone."""
        self.context.trace.refuse(self.name, where, reason)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs the pass on every loop of the model."""
        # Nodes move between graphs; in a pipeline names are unique already.
        renamed = self._given is None and UniqueNamesPass()(model).modified
        context = self._given if self._given is not None else Context.of(model)
        self._context = Context(dataclasses.replace(context.space, facts=Facts.of(model)), context.trace)
        return ir.passes.PassResult(model, modified=self.run(model) or renamed)

    def ensures(self, model: ir.Model) -> None:
        """Names are still unique.

        Raises:
            ir.passes.PostconditionError: one occurs twice.
        """
        verify_unique_names(model)

    def broken(self, node: ir.Node, what: str) -> ir.passes.PostconditionError:
        """The error for a node of which something does not hold that the pass promises."""
        return ir.passes.PostconditionError(f"{self.name}: {node.op_type} '{node_label(node)}' requires {what}")

    def run(self, model: ir.Model) -> bool:
        """Runs on every loop; returns whether something changed."""
        modified = False
        for node in scans_of(model.graph):
            if node.graph is None:
                continue
            modified |= self.rewrite(Loop(node, self.context.space))
        return modified

    @abc.abstractmethod
    def rewrite(self, loop: Loop) -> bool:
        """Rewrites one loop; returns whether something changed."""


class AroundLoops(abc.ABC):
    """Makes a loop pass one on the graphs that hold loops, where products and sums over all steps stand.

    A base class to put before `LoopPass`.
    """

    def run(self, model: ir.Model) -> bool:
        """Looks at every graph that holds a loop."""
        # Every graph, not only up to the first that changes.
        return sum(self.around(graph) for graph in graphs_with_loops(model)) > 0

    def rewrite(self, loop: Loop) -> bool:
        """Looks at the graph around one loop."""
        return self.around(loop.graph)

    @abc.abstractmethod
    def around(self, graph: ir.Graph) -> bool:
        """Rewrites a graph outside its loops' bodies; returns whether something changed."""


def graphs_with_loops(model: ir.Model) -> list[ir.Graph]:
    """The graphs that hold a Scan."""
    graphs = dict.fromkeys(node.graph for node in scans_of(model.graph))
    return [graph for graph in graphs if graph is not None]
