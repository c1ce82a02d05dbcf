"""Closed bodies: a loop's body reads nothing but its parameters, for targets that do not support captured values.

Precondition: any Scan.

- A small constant that the body reads from outside becomes one of its own, where shapes and axes are looked for.
- Any other value becomes a state that no step changes.

Postcondition: no Scan's body reads a tensor of known rank of the graphs around it.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import captures, set_operands
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.passes.loops.views.loop import Loop, State, scans_of
from lstm_lower.passes.loops.views.loop_pass import LoopPass

# A larger constant is handed in as weights are, instead of standing in the model once more.
MOST_BYTES = 1024


class ClosedBodies(LoopPass):
    """Passes captured values into loop bodies, inner loops first."""

    on_blocks = True

    def rewrite(self, loop: Loop) -> bool:
        """Closes one loop's body."""
        captured = loop.captures()
        for value in [value for value in captured if not self._is_carried(value)]:
            self.refuse(value, "a body can only be handed a tensor of known rank")
            captured.remove(value)
        for value in captured:
            _read_instead(loop, value, self._constant(loop, value) or self._handed_in(loop, value))
        if captured:
            loop.commit()
        return bool(captured)

    def _is_carried(self, value: ir.Value) -> bool:
        """Whether it is what onnxruntime lets a Scan carry."""
        return self.facts.dtype(value) is not None and self.facts.rank(value) is not None

    def _constant(self, loop: Loop, value: ir.Value) -> ir.Value | None:
        known, dtype = self.facts.constant(value), self.facts.dtype(value)
        if known is None or known.nbytes > MOST_BYTES or dtype == ir.DataType.STRING:
            return None
        start = next(iter(loop.body), None)
        return loop.inside(start).op(std.Constant, value=ir.AttrTensor("value", ir.Tensor(known, dtype=dtype))).value

    def _handed_in(self, loop: Loop, value: ir.Value) -> ir.Value:
        """A state that stays what it is."""
        form = self.facts.type(value), self.facts.shape(value)
        parameter = loop.space.value(loop.scope("captured"), *form)
        final = loop.space.value(loop.scope("unchanged"), *form)
        loop.states.append(State(value, parameter, parameter, final))
        return parameter

    def faults(self, model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
        """Loops whose bodies read something from outside."""
        for node in scans_of(model.graph):
            for value in filter(self._is_carried, captures(node)):
                yield node, f"a body that reads nothing from outside, but it reads '{value.name}'"


def _read_instead(loop: Loop, old: ir.Value, new: ir.Value) -> None:
    """Lets the body, and the graphs in it, read another value."""
    for node in all_nodes(loop.body):
        changed = {index: new for index, value in enumerate(node.inputs) if value is old}
        if changed:
            set_operands(node, changed)
        for graph in subgraphs_of(node):
            for index, value in enumerate(graph.outputs):
                if value is old:
                    graph.outputs[index] = new
    for state in loop.states:
        state.update = new if state.update is old else state.update
    for output in loop.outputs:
        output.step = new if output.step is old else output.step
