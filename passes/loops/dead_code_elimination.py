"""Dead code elimination: nodes, outputs, states and sequences that nothing reads go; a constant state is captured."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.graph.builder import replace
from lstm_lower.graph.edit import remove_unread
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.loops.loop_fusion import merge_outputs
from lstm_lower.passes.loops.views.dependence import Dependence
from lstm_lower.passes.loops.views.loop import Loop, State, behind_identity
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.while_loop import all_loops


class DeadCodeElimination(LoopPass):
    """Removes dead nodes, outputs, states and unread sequences.

    Postcondition: every node, scan output and state of a loop serves an output of the model; a step reads every
    sequence, but for one that only tells the number of steps.
    """

    tells = True

    def run(self, model: ir.Model) -> bool:
        """Loops first: a state that only feeds itself looks alive to its own body."""
        modified = False
        while True:
            changes = [self.rewrite(loop) for loop in all_loops(model.graph, self.context.space)]
            changed = remove_unread(model.graph) > 0 or any(changes)
            modified |= changed
            # What was removed may have read a loop.
            if not changed or not changes:
                return modified

    def faults(self, model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
        """What serves no output of the model: nodes, outputs and states of loops, and sequences that no step reads."""
        for node in all_nodes(model.graph):
            if not any(output.uses() or output.is_graph_output() for output in node.outputs):
                yield node, "a reader, got none"
        for loop in all_loops(model.graph, self.context.space):
            idle = [x.sequence for x in loop.outputs if not (x.sequence.uses() or x.sequence.is_graph_output())]
            idle += [state.final for state in (*_unchanging(loop), *_dead(loop))]
            for value in idle:
                yield loop.node, f"outputs and states that serve the model's, got '{value.name}'"
            for x in loop.unread_inputs():
                yield loop.node, f"sequences that a step reads, got '{x.sequence.name}'"

    def rewrite(self, loop: Loop) -> bool:
        """Cleans one loop."""
        modified = any(not (x.sequence.uses() or x.sequence.is_graph_output()) for x in loop.outputs)
        modified |= merge_outputs(loop) or bool(loop.unread_inputs())
        for state in _unchanging(loop):
            loop.substitute(state.parameter, state.initial)
            replace(state.final, state.initial, loop.space)
            loop.drop_state(state)
            modified = True
        for state in _dead(loop):
            loop.drop_state(state)
            modified = True
        if modified:
            loop.commit()
        return modified


def _unchanging(loop: Loop) -> list[State]:
    """States that the step passes straight through."""
    return [state for state in loop.states if behind_identity(state.update) is state.parameter]


def _dead(loop: Loop) -> list[State]:
    """States that serve no output, directly or through other states."""
    alive = {state for state in loop.states if state.final.uses() or state.final.is_graph_output()}
    if len(alive) == len(loop.states):
        return []
    dependence = Dependence(loop)
    steps = [*loop.conditions(), *(x.step for x in loop.outputs if x.sequence.uses() or x.sequence.is_graph_output())]
    while True:
        wanted = [*steps, *(state.update for state in alive)]
        read = set(wanted)
        for node in dependence.needed_by(wanted):
            read.update(dependence.operands(node))
        more = {state for state in loop.states if state not in alive and state.parameter in read}
        if not more:
            return [state for state in loop.states if state not in alive]
        alive |= more
