"""Reads of single steps of a sequence, for targets on which every small kernel costs as much as a large one.

An unrolled loop gathers each step of its sequences by itself. Here the steps of what the graph has put together are
read where they were made, and those of other sequences come from one Split.

Postcondition: of a value whose steps are read one by one, at most a half has a Gather of its own.
"""

from __future__ import annotations

from collections import defaultdict

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import remove_unread
from lstm_lower.graph.emit import Constants, Emitter
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass

_Reads = dict[int, list[std.Gather]]


class ReadStepsPass(Pass):
    """Reads single steps of a sequence without a Gather for each."""

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replaces the Gathers."""
        facts, modified = self.context.space.facts, False
        self._constants = Constants(None)
        # In the order of the graph: what stands first comes before all others.
        sequences: dict[tuple[ir.Value, int, ir.Graph | None], _Reads] = defaultdict(lambda: defaultdict(list))
        for node in all_nodes(model.graph):
            view = facts.view(node)
            if isinstance(view, std.Gather) and (step := _step(view)) is not None:
                axis, number = step
                sequences[view.data, axis, node.graph][number].append(view)
        for (sequence, axis, _), reads in sequences.items():
            modified |= self._read_where_made(sequence, axis, reads) or self._read_at_once(sequence, axis, reads)
        remove_unread(model.graph)
        return ir.passes.PassResult(model, modified=modified)

    def _read_where_made(self, sequence: ir.Value, axis: int, reads: _Reads) -> bool:
        """Of a Concat of steps, reads the steps themselves."""
        view = self._view(sequence)
        if not isinstance(view, std.Concat) or view.axis != axis:
            return False
        shapes = [self.context.space.facts.shape(part) for part in view.parts]
        if any(shape is None or shape[axis] != 1 for shape in shapes):
            return False
        for number, gathers in reads.items():
            part = view.parts[number]
            made, emitter = self._view(part), self._before(gathers[0])
            if isinstance(made, std.Unsqueeze) and made.axes == (axis,):
                _read(emitter, gathers, made.data)
            else:
                _read(emitter, gathers, emitter.squeeze(part, axis))
        return True

    def _read_at_once(self, sequence: ir.Value, axis: int, reads: _Reads) -> bool:
        """Divides a sequence of which more than a half is read."""
        shape = self.context.space.facts.shape(sequence)
        steps = None if shape is None else shape[axis]
        if not isinstance(steps, int) or 2 * len(reads) <= steps:
            return False
        emitter = self._before(next(iter(reads.values()))[0])
        parts = emitter.node(std.Split, [sequence, emitter.ints(*[1] * steps)], steps, axis=axis).outputs
        for number, gathers in reads.items():
            _read(emitter, gathers, emitter.squeeze(parts[number], axis))
        return True

    def _view(self, value: ir.Value) -> std.Standard | None:
        producer = value.producer()
        return None if producer is None else self.context.space.facts.view(producer)

    def _before(self, gather: std.Gather) -> Emitter:
        node = gather.node
        assert node.graph is not None
        return Emitter(
            self.context.space, node.graph, before=node, scope=node.name or "steps", constants=self._constants
        )


def _read(emitter: Emitter, gathers: list[std.Gather], step: ir.Value) -> None:
    for gather in gathers:
        emitter.replace(gather.node.outputs[0], step)


def _step(view: std.Gather) -> tuple[int, int] | None:
    """The axis along which one step is read, and its number; `None` where that is not certain."""
    axis, index, shape = view.axis, view.constant(1), view.shape()
    if axis is None or index is None or index.ndim or shape is None or view.constant(0) is not None:
        return None
    size = shape[axis]
    return (axis, int(index) % size) if isinstance(size, int) and size > 2 else None
