"""Code sinking: work whose result only leaves the loop moves behind it, over all steps at once.

Precondition: any Scan. A node that no next step needs is written for all steps on the sequences of its operands
(`batching`). Its operands must leave the loop for that, so a node sinks when it holds a product or when what leaves
then is no larger than before.

Postcondition: `x_grad[t] = gates[t] @ w'` and its like are one product behind the loop.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import replace
from lstm_lower.passes.loops.gemm_opening import GemmOpening
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.views.batching import NotBatchable
from lstm_lower.passes.loops.views.dependence import Dependence, Level, is_pure
from lstm_lower.passes.loops.views.loop import Loop, makes_result
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.sequences import Sequences
from lstm_lower.reachability import reached


class CodeSinking(LoopPass):
    """Moves work that only computes outputs after the loop."""

    # Work behind the loop cannot read what the body makes, though it be the same at every step.
    needs = (GemmOpening, InvariantHoisting)

    def rewrite(self, loop: Loop) -> bool:
        """Sinks from one loop."""
        if not loop.inputs:
            return False
        modified = False
        dependence = Dependence(loop)
        sinking = _choose(loop, dependence)
        if not sinking:
            return modified
        sequences = Sequences(loop, loop.after())
        written = self._write(dependence, sequences, sinking)
        for output in list(loop.outputs):
            if output.step.producer() not in written:
                continue
            try:
                sequence = sequences.as_output(output.step, output)
            except NotBatchable as reason:
                self.refuse(output.sequence, str(reason))
                continue
            loop.outputs.remove(output)
            replace(output.sequence, sequence, loop.space)
            modified = True
        sequences.editor.discard_unread()
        if modified:
            loop.commit()
        return modified

    def _write(self, dependence: Dependence, sequences: Sequences, sinking: set[ir.Node]) -> set[ir.Node]:
        written: set[ir.Node] = set()
        for node in dependence.order:
            if node not in sinking:
                continue
            try:
                for value in dependence.operands(node):
                    if value in sequences.batch.sequences or value in sequences.batch.shared:
                        continue
                    if dependence.level(value) != Level.INVARIANT:
                        sequences.stack(value)
                sequences.batch.write(node)
            except NotBatchable as reason:
                self.refuse(node, str(reason))
                continue
            written.add(node)
        return written


def _choose(loop: Loop, dependence: Dependence) -> set[ir.Node]:
    """The nodes to sink: closed under readers, and worth it."""
    recurrent = dependence.recurrent()
    free = [
        node
        for node in dependence.order
        if node not in recurrent
        and is_pure(node)
        and dependence.node_level(node) != Level.INVARIANT
        and not (makes_result(node) and _stays(node, recurrent, loop))
    ]
    readers: dict[ir.Node, set[ir.Node]] = {}
    for node in reversed(free):
        reading = {r for output in node.outputs for r in dependence.readers(output)}
        # What a node reads that cannot sink, such as a call of a function, stays.
        if reading <= readers.keys():
            readers[node] = reading
    free = list(reversed(readers))
    sinking: set[ir.Node] = set()
    for node in free:
        if std.Product.matches(node):
            sinking.update(reached([node], lambda sunk: readers[sunk] - sinking))
    steps = {output.step for output in loop.outputs}
    changed = True
    while changed:
        changed = False
        for node in reversed(free):
            if node in sinking or not readers[node] <= sinking:
                continue
            if _newly_stacked(node, dependence, sinking, steps) <= _no_longer_stacked(node, dependence, sinking, steps):
                sinking.add(node)
                changed = True
    return sinking


def _stays(node: ir.Node, recurrent: set[ir.Node], loop: Loop) -> bool:
    """Whether what a node reads is made by what stays in the loop: then it must leave the loop in any case."""
    producer = node.inputs[0].producer() if node.inputs[0] is not None else None
    return producer is None or producer in recurrent or producer.graph is not loop.body


def _newly_stacked(node: ir.Node, dependence: Dependence, sinking: set[ir.Node], steps: set[ir.Value]) -> int:
    """Elements per step that have to leave the loop when a node sinks and did not before."""
    total = 0
    for value in dependence.operands(node):
        producer = value.producer()
        if dependence.level(value) == Level.INVARIANT or value in steps or producer in sinking:
            continue
        if any(reader in sinking for reader in dependence.readers(value)):
            continue
        if dependence.level(value) == Level.STEP and producer is None:
            continue
        total += dependence.loop.facts.elements(value)
    return total


def _no_longer_stacked(node: ir.Node, dependence: Dependence, sinking: set[ir.Node], steps: set[ir.Value]) -> int:
    """Elements per step that leave the loop now and no longer do when a node sinks."""
    return sum(
        dependence.loop.facts.elements(output)
        for output in node.outputs
        if output in steps or any(reader in sinking for reader in dependence.readers(output))
    )
