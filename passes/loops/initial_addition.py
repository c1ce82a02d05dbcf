"""Initial addition: what is added to a state before the first step, and zeros after it, is added to its initial value.

The gradient of a sequence's last element alone walks backwards along zeros: a tensor of the sequence's size is filled,
and read and added at every step. Others carry such a gradient as a state of its own, which is zero from the second step
on.

Precondition: any Scan. A state that only one node of the body reads, an Add of equal shapes, whose other operand is,
perhaps rearranged,

- an element of a sequence that is padded with zeros and has something in the first place of the walk only, or
- a state whose update is zeros.

Postcondition: no such Add. Nothing is rounded otherwise than before: all other steps added zeros.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import detach
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.views.dependence import Dependence
from lstm_lower.passes.loops.views.loop import Loop, ScanInput, State
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.moves import moved, moves_from
from lstm_lower.passes.loops.views.pads import lone_element


class InitialAddition(LoopPass):
    """Adds what only the first step adds to a state to its initial value."""

    # What a layout is told by, the same at every step, stands outside, where the sum will.
    needs = (InvariantHoisting,)

    def rewrite(self, loop: Loop) -> bool:
        """Takes such sums out of one loop."""
        modified, dependence = False, Dependence(loop)
        for state in loop.states:
            modified |= self._take_out(loop, dependence, state)
        if modified:
            loop.commit()
        return modified

    def _take_out(self, loop: Loop, dependence: Dependence, state: State) -> bool:
        readers = dependence.readers(state.parameter)
        addition = std.Add.of(readers[0], self.facts) if len(readers) == 1 else None
        if addition is None or state.parameter in set(loop.results()) or len(set(addition.inputs)) != 2:
            return False
        term = next(value for value in addition.inputs if value is not None and value is not state.parameter)
        sources: dict[ir.Value, State | ScanInput] = {source.parameter: source for source in loop.states}
        sources.update((source.parameter, source) for source in loop.inputs)
        found = moves_from(sources, term, dependence)
        if found is None:
            return False
        e = loop.before("initial")
        first = self._lone_first(sources[found[0]], e)
        if first is None:
            return False
        if not self.facts.same_shape(term, state.parameter):
            self.refuse(addition.node, "its operands are not known to have equal shapes")
            e.discard_unread()
            return False
        state.initial = e.op(std.Add, state.initial, moved(e, first, found[1]))
        loop.substitute(addition.output, state.parameter)
        detach(addition.node)
        return True

    def _lone_first(self, source: State | ScanInput, e: Builder) -> ir.Value | None:
        """What a state or an element of a sequence is in the first step, where it is zeros in all others."""
        if isinstance(source, State):
            return source.initial if self.facts.uniform(source.update) == 0.0 else None
        element = lone_element(self.facts, source.sequence, last=source.reverse) if source.axis == 0 else None
        return None if element is None else e.squeeze(element, 0)
