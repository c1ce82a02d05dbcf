"""Output concatenation: sequences of all parts of a concatenation become one sequence of the concatenation.

Precondition: any Scan. The recurrence concatenates values and each of them also leaves the loop, time on axis 0 and all
in one direction. The concatenation leaves the loop instead, and is split behind it.

Postcondition: what was made twice is made once: the parts are read by the concatenation only, where `concat-fusion` can
then join their making, and work behind the loop finds them side by side.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import replace
from lstm_lower.passes.loops.views.dependence import Dependence
from lstm_lower.passes.loops.views.loop import Loop, ScanOutput
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.moves import behind_identity


class OutputConcatenation(LoopPass):
    """Moves concatenations out of the loop instead of their parts."""

    def rewrite(self, loop: Loop) -> bool:
        """Joins the outputs of one loop."""
        modified = False
        recurrent = Dependence(loop).recurrent()
        for node in list(loop.body):
            concat = std.Concat.of(node, loop.facts)
            if concat is not None and node in recurrent:
                modified |= _join(loop, concat)
        if modified:
            loop.commit()
        return modified


def _join(loop: Loop, concat: std.Concat) -> bool:
    parts, axis = concat.parts, concat.axis
    if axis is None or len(set(parts)) < len(parts) or len(parts) < 2:
        return False
    outputs = [_output_of(loop, part) for part in parts]
    sizes = [shape[axis] if (shape := loop.facts.shape(part)) is not None else None for part in parts]
    found = [output for output in outputs if output is not None]
    known = [size for size in sizes if isinstance(size, int)]
    if len(found) < len(parts) or len(known) < len(parts) or len({output.reverse for output in found}) > 1:
        return False
    whole = loop.add_output(concat.output)
    whole.reverse = found[0].reverse
    e = loop.after("joined")
    split = e.node(std.Split, [whole.sequence, e.ints(*known)], len(parts), axis=axis + 1)
    for output, part in zip(found, split.outputs, strict=True):
        loop.outputs.remove(output)
        replace(output.sequence, part, loop.space)
    return True


def _output_of(loop: Loop, value: ir.Value) -> ScanOutput | None:
    return next((x for x in loop.outputs if x.axis == 0 and behind_identity(x.step) is value), None)
