"""Loop reversal: a loop walks a sequence backwards instead of forwards along a copy that is turned round.

Exporters and languages that only know loops that run forward turn sequences round before a loop, and its results after
it.

Precondition: any Scan. A sequence turned round along its axis of time, by a Slice of step -1 or a Gather of all
positions from the last to the first, is walked along in the other direction. A sequence that the loop makes and that is
only read turned round is made in the other direction.

Postcondition: no sequence is turned round for a loop, nor one that a loop made for all its readers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import replace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.inference import sliced
from lstm_lower.passes.loops.views.loop import Loop, ScanInput, ScanOutput, scans_of
from lstm_lower.passes.loops.views.loop_pass import LoopPass


class LoopReversal(LoopPass):
    """Reads sequences backwards instead of reversing them."""

    def run(self, model: ir.Model) -> bool:
        """Turns what loops read first: then what others made for them need not be made backwards."""
        modified = False
        for turn in (self._turn_inputs, self._turn_outputs):
            for node in scans_of(model.graph):
                modified |= turn(Loop(node, self.context.space))
        return modified

    def faults(self, model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
        """Loops that walk along a sequence that is turned round for them."""
        for node in scans_of(model.graph):
            loop = Loop(node, self.context.space)
            for x in loop.inputs:
                if _turned(loop, x) is not None:
                    yield node, f"the other direction along '{x.sequence.name}', which is turned round"

    def rewrite(self, loop: Loop) -> bool:
        """Turns the sequences of one loop."""
        modified = self._turn_inputs(loop)
        return self._turn_outputs(loop) or modified

    @staticmethod
    def _turn_inputs(loop: Loop) -> bool:
        modified = False
        for x in loop.inputs:
            while (source := _turned(loop, x)) is not None:
                x.sequence, x.reverse = source, not x.reverse
                modified = True
        if modified:
            loop.commit()
        return modified

    @staticmethod
    def _turn_outputs(loop: Loop) -> bool:
        modified = False
        for output in loop.outputs:
            modified |= _turn_output(loop, output)
        if modified:
            loop.commit()
        return modified


def _turned(loop: Loop, x: ScanInput) -> ir.Value | None:
    """What a sequence that is walked along is turned round from; `None` for any other."""
    shape = loop.facts.shape(x.sequence)
    turned = turned_round(loop.facts, x.sequence.producer())
    return turned[0] if shape is not None and turned is not None and turned[1] == x.axis % len(shape) else None


def _turn_output(loop: Loop, output: ScanOutput) -> bool:
    shape = loop.facts.shape(output.sequence)
    readers = list(dict.fromkeys(user for user, _ in output.sequence.uses()))
    if shape is None or not readers or output.sequence.is_graph_output():
        return False
    for reader in readers:
        turned = turned_round(loop.facts, reader)
        if turned is None or turned != (output.sequence, output.axis % len(shape)) or reader.graph is not loop.graph:
            return False
    output.reverse = not output.reverse
    for reader in readers:
        replace(reader.outputs[0], output.sequence, loop.space)
        detach(reader)
    return True


def turned_round(facts: std.Knowledge, node: ir.Node | None) -> tuple[ir.Value, int] | None:
    """What a node turns round, and the axis; `None` when it does something else."""
    view = facts.view(node)
    shape = None if view is None else view.shape()
    if shape is None:
        return None
    if isinstance(view, std.Gather):
        axis, indices = view.axis, view.constant(1)
        size = None if axis is None else shape[axis]
        if axis is None or indices is None or indices.ndim != 1 or indices.size != size:
            return None
        return (view.data, axis) if np.array_equal(indices % size, np.arange(size)[::-1]) else None
    if not isinstance(view, std.Slice) or view.axes is None or len(view.axes) != 1 or view.steps != (-1,):
        return None
    (axis,) = view.axes
    starts, ends, size = facts.entries(view.starts), facts.entries(view.ends), shape[axis]
    if starts is None or ends is None or sliced(size, starts[0], ends[0], -1) != size:
        return None
    return view.data, axis
