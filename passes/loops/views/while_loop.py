"""A mutable view of a Loop node, in the form of the view of a Scan: what is no Scan yet, or cannot be one."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.values import Dim, UnknownEntry
from lstm_lower.passes.loops.views.carried_shapes import tell_shapes
from lstm_lower.passes.loops.views.linear_code import scalar
from lstm_lower.passes.loops.views.loop import Loop, ScanInput, ScanOutput, State, behind_identity, inner_first, is_scan
from lstm_lower.passes.loops.views.scalar_evolution import ScalarEvolution
from lstm_lower.passes.model_pass import Context


class WhileLoop(Loop):
    """The view.

    Attributes:
        trips: the number of steps at most, `None` for any.
        start: whether there is a first step, `None` for yes.
        iteration: the body's input that counts the steps.
        going: the body's input that holds the condition.
        again: the body's value that tells whether there is a next step.
    """

    def __init__(self, node: ir.Node, space: Workspace) -> None:
        """Reads a Loop node.

        Args:
            node: a Loop, see `is_loop`.
            space: names, facts and version of the model.
        """
        self.node = node
        self.space = space
        self.names = space.names
        self.opset = space.opset
        view = std.Loop(node, space.facts)
        self.body = view.body
        self.trips, self.start = view.trips, view.start
        self.iteration, self.going = self.body.inputs[:2]
        self.again = self.body.outputs[0]
        count = len(view.carried)
        roles = zip(view.carried, self.body.inputs[2:], self.body.outputs[1:], node.outputs, strict=False)
        self.states = [State(initial, *rest) for initial, *rest in roles if initial is not None]
        self.inputs: list[ScanInput] = []
        self.outputs = [
            ScanOutput(behind_identity(step), sequence)
            for step, sequence in zip(self.body.outputs[1 + count :], node.outputs[count:], strict=True)
        ]
        self._written = self._operand_list()

    @property
    def view(self) -> std.Loop:
        """The operator's view of the node as it was last written."""
        return std.Loop(self.node, self.space.facts)

    def count(self, e: Builder) -> ir.Value:
        """The number of steps of a Loop that runs as often as its trip count says, an int64 scalar."""
        assert self.trips is not None
        entries, steps = self.facts.entries(self.trips), scalar(e, self.trips)
        (count,) = entries if entries is not None and len(entries) == 1 else (None,)
        never_less = not isinstance(count, UnknownEntry | int | None) or (isinstance(count, int) and count >= 0)
        # Less than nothing is nothing.
        return steps if never_less or self.view.never_empty else e.op(std.Max, steps, e.constant(0))

    def evolution(self) -> ScalarEvolution:
        """How the integer scalars of the body change, as it is now."""
        carried = {state.parameter: (state.initial, state.update) for state in self.states}
        return ScalarEvolution(self.facts, self.body, self.iteration, carried)

    def conditions(self) -> Iterator[ir.Value]:
        """The body's outputs that control the loop itself."""
        yield self.again

    def results(self) -> Iterator[ir.Value]:
        """The body's outputs: the condition, updates of the states, then the steps of the outputs."""
        yield from self.conditions()
        yield from super().results()

    def substitute(self, old: ir.Value, new: ir.Value) -> None:
        """Lets every reader in the body, and the body's outputs, read `new` instead of `old`."""
        super().substitute(old, new)
        self.again = new if self.again is old else self.again

    def run_always(self) -> bool:
        """Lets nothing but the trip count end the loop; not where the body reads a condition of unknown shape."""
        shape = () if self.start is None else self.facts.shape(self.start)
        if self.going.uses() or self.going in set(super().results()):
            sizes = [dim for dim in shape or () if isinstance(dim, int)]
            if shape is None or len(sizes) < len(shape):
                return False
            self.substitute(self.going, self.before().constant(np.ones(sizes), ir.DataType.BOOL).value)
        self.start = None
        self.again = self.inside().constant(value=True, dtype=ir.DataType.BOOL).value
        # Where no condition is given, onnxruntime asks what the body declares of it.
        self.going.shape = ir.Shape([])
        return True

    def _whole(self, step: ir.Value) -> tuple[Dim | None, ...] | None:  # noqa: ARG002
        return None

    def _holders(self) -> list[tuple[Any, str]]:
        return [(self, "again"), *super()._holders()]

    def _parameters(self) -> list[ir.Value]:
        return [self.iteration, self.going, *super()._parameters()]

    def _operand_list(self) -> list[Any]:
        return [self.trips, self.start, *super()._operand_list()]

    def _drop_unread_inputs(self) -> None:
        """A Loop walks along nothing."""

    def _operands(self) -> list[ir.Value | None]:
        return [self.trips, self.start, *super()._operands()]

    def _attributes(self) -> dict[str, Any]:
        return {}


class OnLoops(abc.ABC):
    """Makes a loop pass one on Loops instead of Scans, inner ones before those that hold them.

    A base class to put before `LoopPass`.
    """

    context: Context

    def run(self, model: ir.Model) -> bool:
        """Looks at every Loop."""
        modified, space = False, self.context.space
        tell_shapes(model.graph, space.facts)
        for loop in all_loops(model.graph, space):
            if isinstance(loop, WhileLoop) and self.rewrite(loop):
                modified = True
                space.facts.look_again()
        return modified

    @abc.abstractmethod
    def rewrite(self, loop: Loop) -> bool:
        """Rewrites one loop; returns whether something changed."""


def is_loop(node: ir.Node) -> bool:
    """Whether a node is a Loop whose carried values are all given."""
    return std.Loop.matches(node) and "body" in node.attributes and None not in node.inputs[2:]


def all_loops(graph: ir.Graph, space: Workspace) -> Iterator[Loop]:
    """The views of all Scans and Loops that a graph and its subgraphs hold, inner ones first, as long as they do."""
    for node in inner_first(graph, lambda node: is_loop(node) or is_scan(node)):
        if node.graph is not None:
            yield WhileLoop(node, space) if is_loop(node) else Loop(node, space)
