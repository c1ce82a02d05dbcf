"""Loop-invariant code motion: work that does not need the carried state leaves the loop's body.

Invariant is what the state does not change: what is made of the step's elements alone.

Precondition: any Scan without work that is the same at every step (`InvariantHoisting`) and Gemms
(`GemmOpening`). What follows from the step's elements is written for all steps at once (`batching`), and the body reads
one element of the result per step; `x @ W` becomes one product.

Postcondition: the body holds only nodes that need the carried state, or for which no rule over all steps exists.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import replace
from lstm_lower.graph.edit import remove_unread
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.gemm_opening import GemmOpening
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting, is_anchor
from lstm_lower.passes.loops.views.batching import NotBatchable
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.sequences import Sequences

# A result for all steps at once may be this many times larger than what it is computed from.
LARGEST_GROWTH = 16


class LoopInvariantCodeMotion(LoopPass):
    """Moves work on scan inputs before the loop."""

    needs = (GemmOpening, InvariantHoisting)

    def run(self, model: ir.Model) -> bool:
        """Runs on every loop, without nodes that nothing reads: such a call would hold its loop where it is."""
        unread = remove_unread(model.graph)
        return super().run(model) or unread > 0

    def rewrite(self, loop: Loop) -> bool:
        """Hoists from one loop."""
        dependence = Dependence(loop)
        sequences = Sequences(loop, loop.before())
        hoisted = self._write_steps(loop, dependence, sequences)
        led_around = self._lead_around(loop, dependence, sequences)
        if not hoisted and not led_around:
            sequences.editor.discard_unread()
            return False
        _read_elements(loop, dependence, sequences, hoisted)
        loop.commit()
        sequences.editor.discard_unread()
        return True

    def _write_steps(self, loop: Loop, dependence: Dependence, sequences: Sequences) -> set[ir.Node]:
        """Emits for all steps what depends on the step only; returns the nodes that are no longer needed inside."""
        hoisted: set[ir.Node] = set()
        stuck: set[ir.Value] = set()
        batch = sequences.batch
        for node in dependence.order:
            if dependence.node_level(node) != Level.STEP or is_anchor(loop, node):
                continue
            try:
                _check_outside(dependence.operands(node), stuck)
                for value in dependence.operands(node):
                    sequences.load(value)
                _check_growth(loop.facts, node)
                batch.write(node)
            except NotBatchable as reason:
                self.refuse(node, str(reason))
                stuck.update(node.outputs)
                continue
            hoisted.add(node)
        return hoisted

    def _lead_around(self, loop: Loop, dependence: Dependence, sequences: Sequences) -> bool:
        """A sequence made without the carried state does not go through the loop; whether there was one."""
        found = False
        for output in list(loop.outputs):
            level = dependence.level(output.step)
            if level == Level.CARRIED or not loop.inputs:
                continue
            step = output.step
            try:
                known = dependence.is_outside(step) or step in sequences.batch.sequences or sequences.load(step)
                if not known:
                    continue
                sequence = sequences.as_output(step, output)
            except NotBatchable as reason:
                self.refuse(output.sequence, str(reason))
                continue
            loop.outputs.remove(output)
            replace(output.sequence, sequence, loop.space)
            found = True
        return found


def _read_elements(loop: Loop, dependence: Dependence, sequences: Sequences, hoisted: set[ir.Node]) -> None:
    """Lets what stays in the body read elements of the hoisted sequences."""
    batch = sequences.batch
    for value, outer in batch.shared.items():
        loop.substitute(value, outer)
    results = set(loop.results())
    for node in dependence.order:
        if node not in hoisted:
            continue
        for value in node.outputs:
            if value not in batch.sequences:
                continue
            if value in results or any(reader not in hoisted for reader in dependence.readers(value)):
                loop.substitute(value, loop.add_input(batch.sequences[value]))


def _check_outside(values: list[ir.Value], stuck: set[ir.Value]) -> None:
    for value in values:
        if value in stuck:
            raise NotBatchable(f"it reads '{value.name}', which stays in the loop")


def _check_growth(facts: Facts, node: ir.Node) -> None:
    made = sum(map(facts.elements, node.outputs))
    read = sum(facts.elements(value) for value in node.inputs if value is not None)
    if not std.Product.matches(node) and made > LARGEST_GROWTH * max(read, 4096):
        raise NotBatchable(f"the result is {made // max(read, 1)} times as large as what it is computed from")
