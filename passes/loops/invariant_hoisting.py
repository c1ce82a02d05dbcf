"""Invariant hoisting: what is the same at every step is computed once, before the loop.

Precondition: any Scan.

Postcondition: no body holds a node whose results are the same at every step, but those that have to make a result of
the body there, nor a weight of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.graph.form import node_label
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.hoisting import hoist_initializers
from lstm_lower.passes.loops.views.loop import Loop, makes_result, scans_of
from lstm_lower.passes.loops.views.loop_pass import LoopPass


class InvariantHoisting(LoopPass):
    """Moves initializers and nodes whose results are the same at every step before the loop."""

    on_blocks = True

    def rewrite(self, loop: Loop) -> bool:
        """Hoists from one loop."""
        modified = hoist_initializers(loop)
        invariant = _invariant(loop)
        if not invariant:
            return modified
        loop.body.outputs.clear()
        before = loop.before()
        for node in invariant:
            loop.body.remove(node)
            before.place(node)
        loop.write()
        return True

    def faults(self, model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
        """Nodes of bodies whose results are the same at every step, and bodies with weights of their own."""
        for scan in scans_of(model.graph):
            loop = Loop(scan, self.context.space)
            for node in _invariant(loop):
                yield node, f"a place before the loop, got the body of '{node_label(scan)}'"
            if loop.body.initializers:
                yield scan, f"a body without initializers, got {', '.join(loop.body.initializers)}"


def _invariant(loop: Loop) -> list[ir.Node]:
    """The nodes of a body whose results are the same at every step, but those that have to make a result there."""
    dependence = Dependence(loop)
    invariant = [node for node in dependence.order if dependence.node_level(node) == Level.INVARIANT]
    return [node for node in invariant if not is_anchor(loop, node)]


def is_anchor(loop: Loop, node: ir.Node) -> bool:
    """Whether a node only makes a result of the body out of a value from elsewhere, which Scan asks for."""
    if not makes_result(node):
        return False
    producer = node.inputs[0].producer() if node.inputs[0] is not None else None
    return producer is None or producer.graph is not loop.body
