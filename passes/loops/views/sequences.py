"""The sequences that a loop's values are known by outside of it."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder
from lstm_lower.passes.loops.views.batching import Batch, NotBatchable
from lstm_lower.passes.loops.views.carried_shapes import values_of
from lstm_lower.passes.loops.views.loop import Loop, ScanOutput, State
from lstm_lower.passes.loops.views.variation import BodyVariation


class Sequences:
    """Makes sequences, time on axis 0 in the loop's direction, of values of a loop's body."""

    def __init__(self, loop: Loop, editor: Builder) -> None:
        self.loop = loop
        self.editor = editor
        self.batch = Batch(editor)
        self._inputs = {x.parameter: x for x in loop.inputs}
        self._states = {state.parameter: state for state in loop.states}

    def load(self, value: ir.Value) -> bool:
        """Makes the sequence of a scan input's element known; whether the value is one.

        Raises:
            NotBatchable: its rank is not known and its axis or direction asks for it.
        """
        x = self._inputs.get(value)
        if x is None:
            return False
        if value not in self.batch.sequences:
            sequence = x.sequence
            if x.axis != 0:
                sequence = self.editor.move_axis(sequence, x.axis, 0, self.batch.rank(sequence))
            if x.reverse != self.loop.reverse:
                sequence = self.editor.reverse(sequence, 0)
            self.batch.sequences[value] = sequence
        return True

    def state(self, value: ir.Value) -> State | None:
        """The state that a value is the parameter of."""
        return self._states.get(value)

    def stack(self, value: ir.Value) -> None:
        """Makes the sequence of any value of the body known, by a scan output where nothing less does.

        Raises:
            NotBatchable: see `load`; its rank is not known, which onnxruntime asks of what leaves a loop, or its shape
                is seen to vary.
        """
        if value in self.batch.sequences or self.load(value):
            return
        shape = self.batch.shape(value)
        if self._varies(value):
            raise NotBatchable("its shape differs from step to step")
        state = self.state(value)
        if state is not None and self.loop.made(state.update) is not None:
            # The values before each step: the initial one, then those after each step but the last.
            first = self.editor.unsqueeze(state.initial, 0)
            after = self.loop.stacked(state.update).sequence
            if self.loop.reverse:
                parts = [self.editor.slice(after, 1, END, 0), first]
            else:
                parts = [first, self.editor.slice(after, 0, -1, 0)]
            sequence = self.editor.op(std.Concat, *parts, axis=0)
            self.batch.sequences[value] = self.editor.set_shape(sequence, (self.loop.length, *shape))
            return
        self.batch.sequences[value] = self.loop.stacked(value).sequence

    def _varies(self, value: ir.Value) -> bool:
        if all(isinstance(dim, int | str) for dim in self.batch.shape(value)):
            return False
        inside = set(values_of(self.loop.body))
        kept = {*self._inputs, *self._states}
        return BodyVariation(self.loop.facts, lambda x: x not in inside, {}, kept, lambda _: False).of(value)

    def as_output(self, value: ir.Value, output: ScanOutput) -> ir.Value:
        """The sequence of a value laid out as an output wants it; what is the same at every step is repeated.

        Raises:
            NotBatchable: its rank is not known and the output's axis, or repeating it, asks for it.
        """
        sequence = self.batch.sequences.get(value)
        if sequence is None:
            like = self.loop.inputs[0].parameter
            self.load(like)
            sequence = self.batch.spread(value, like)
        if output.reverse != self.loop.reverse:
            sequence = self.editor.reverse(sequence, 0)
        if output.axis != 0:
            sequence = self.editor.move_axis(sequence, 0, output.axis, self.batch.rank(value) + 1)
        return sequence
