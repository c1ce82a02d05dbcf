"""Concatenation recognition: what a Loop's steps put one behind another leaves it as a sequence.

A gradient of rows with indices, or a list that grows by several elements in every step, is carried as one tensor to
which each step appends: all that is there already is copied in every step.

Precondition: a carried tensor that every step only appends to, along its first axis; what is appended is not seen to
change its shape from step to step.

Postcondition: the state is gone. The loop hands out what each step appends, which is joined behind it. With no state
that grows, a Loop may become a Scan.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.passes.formulas.rows import reshape_to, tail_of
from lstm_lower.passes.loops.views.loop import Loop, ScanOutput, State
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.variation import variation
from lstm_lower.passes.loops.views.while_loop import OnLoops, WhileLoop


class ConcatenationRecognition(OnLoops, LoopPass):
    """Joins behind Loops what their steps append."""

    def rewrite(self, loop: Loop) -> bool:
        """Joins what the steps of one Loop append."""
        assert isinstance(loop, WhileLoop)
        found = [(state, pieces) for state in loop.states if (pieces := _appended(loop, state))]
        if not found:
            return False
        varies = variation(loop.view, self.facts, self.context.model.graph)
        joined: list[tuple[State, ScanOutput]] = []
        for state, pieces in found:
            if any(map(varies.of, pieces)):
                self.refuse(state.final, "what is appended to it may have another shape in another step")
                continue
            piece = pieces[0] if len(pieces) == 1 else loop.inside().op(std.Concat, *pieces, axis=0)
            joined.append((state, loop.add_output(piece)))
        # Of what the node hands out more is known once it does.
        loop.write()
        for state, output in joined:
            replace(state.final, _joined(loop.after("joined"), state.initial, output.sequence), loop.space)
            loop.drop_state(state)
        loop.commit()
        return bool(joined)


def _appended(loop: WhileLoop, state: State) -> list[ir.Value]:
    """What a step only appends to a state; nothing where it does something else."""
    concat, results = std.Concat.of(state.update.producer(), loop.facts), list(loop.results())
    if concat is None or concat.axis != 0 or concat.node.graph is not loop.body or not loop.facts.rank(state.initial):
        return []
    first, *rest = concat.inputs
    pieces = [piece for piece in rest if piece is not None]
    read = [node for node, _ in state.parameter.uses()]
    alone = read == [concat.node] and state.parameter not in results
    handed_on = len(state.update.uses()) == 0 and results.count(state.update) == 1
    known = all(loop.facts.rank(piece) for piece in pieces)
    return pieces if first is state.parameter and alone and handed_on and known else []


def _joined(e: Builder, initial: ir.Value, sequence: ir.Value) -> ir.Value:
    """The initial value and the pieces one behind another; of no step nothing is known but that there are no pieces."""
    first, pieces = e.wrap(initial), e.wrap(sequence)
    tail = tail_of(first, 1)
    if all(isinstance(size, int) and size > 0 for size in tail.entries or (None,)):
        rows = e.ints(-1)
    else:
        rows = e.op(std.ReduceProd, pieces.sizes().slice(0, 2, axis=0), keepdims=1)
    return e.concat([first, reshape_to(pieces, e.concat([rows, tail], 0))], 0).value
