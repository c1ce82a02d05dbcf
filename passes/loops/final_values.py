"""Final values: what is only read after a loop's last step is not made in every step.

Precondition: any Scan; it runs at least once.

- The last element of a sequence of a state's values is what the state is in the end.
- A state that no step reads, and that only lays another state's value out anew, is laid out so behind the loop.

Postcondition: neither is left, so that sequences and states that served nothing else are not made any more.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import replace
from lstm_lower.graph.edit import detach
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.views.dependence import Dependence
from lstm_lower.passes.loops.views.loop import Loop, ScanOutput, State, behind_identity
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.moves import moved, moves_from


class FinalValues(LoopPass):
    """Takes final values of states from where they already are."""

    # What a layout is told by, the same at every step, stands outside, where it is told again.
    needs = (InvariantHoisting,)

    def rewrite(self, loop: Loop) -> bool:
        """Looks at what is read of one loop."""
        modified = False
        updates = {behind_identity(state.update): state for state in loop.states}
        for output in loop.outputs:
            state = updates.get(output.step)
            if state is not None:
                modified |= self._read_final(loop, output, state)
        dependence = Dependence(loop)
        for state in list(loop.states):
            modified |= self._lay_out_behind(loop, dependence, state)
        if modified:
            loop.commit()
        return modified

    def _read_final(self, loop: Loop, output: ScanOutput, state: State) -> bool:
        """Lets what takes the last element of a sequence read the state's final value."""
        gathers = [std.Gather.of(node, self.facts) for node, _ in output.sequence.uses() if node.graph is loop.graph]
        found = [gather for gather in gathers if gather is not None and self._takes_last(gather, output)]
        for gather in found:
            replace(gather.output, state.final, loop.space)
            detach(gather.node)
        return bool(found)

    def _takes_last(self, gather: std.Gather, output: ScanOutput) -> bool:
        place, rank = self.facts.constant(gather.indices), self.facts.rank(output.sequence)
        if gather.data is not output.sequence or place is None or place.ndim or rank is None:
            return False
        return gather.axis == output.axis % rank and int(place) == (0 if output.reverse else -1)

    def _lay_out_behind(self, loop: Loop, dependence: Dependence, state: State) -> bool:
        """Makes the final value of a state that no step reads from another's."""
        if state.parameter.uses() or state.parameter in set(loop.results()) or not _is_read(state.final):
            return False
        others = {behind_identity(other.update): other for other in loop.states if other is not state}
        found = moves_from(others, state.update, dependence)
        if found is None:
            return False
        source, moves = found
        replace(state.final, moved(loop.after("final"), others[source].final, moves), loop.space)
        loop.drop_state(state)
        return True


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
