"""Strip-mining: a loop over steps becomes a loop over blocks of K steps that holds the loop over a block's steps.

Precondition: any Scan that did not come out of such a division itself. Hoisted and sunk work of the inner loop then
stops at the block: what it keeps for all steps it keeps for K of them, and a block's intermediates stay in cache.
Accumulators are added once per block. The number of steps need not be a multiple of K, nor be known: the last block is
shorter then, and its outputs are padded and cut. Blocks of one step have no axis of steps: what is kept is kept for one
step, and outputs are written where they stay. A sequence that is another one moved by a step is not made as a whole:
a block reads its part of the original.

Postcondition: both Scans are marked, so that other passes leave the blocks together and no later run, also of the saved
model, divides them again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr, replace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.names import Names
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.loops.schedule import block_steps
from lstm_lower.passes.loops.views.loop import BLOCK, BLOCKS, Loop, ScanInput, ScanOutput, is_divided
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.partitions import Segment, cut, segments_of
from lstm_lower.passes.model_pass import Context

# Longer blocks are made only where it is known that there are as many steps: a shorter one is padded.
MOST_PADDED = 1 << 16
# Rounded up to whole blocks their number is still an int64.
MOST_STEPS = 1 << 62
# What onnxruntime's Pad takes on CPUs.
PADDED = frozenset(
    {
        *(ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BOOL, ir.DataType.INT8),
        *(ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT8, ir.DataType.UINT32, ir.DataType.UINT64),
    }
)


class NotChunkable(Exception):  # noqa: N818 (a verdict, not an error)
    """A loop cannot be divided into blocks; the message says why."""


class StripMining(LoopPass):
    """Divides loops into blocks of steps.

    Loops that it made are not divided again.
    """

    def __init__(self, context: Context | None = None, *, kind: str = "auto", steps: int = 0) -> None:
        """Sets the schedule.

        Args:
            context: shared by the passes on one model.
            kind: `auto` or `chunk`.
            steps: steps per block under `chunk`.
        """
        super().__init__(context)
        self.kind = kind
        self.steps = steps

    def rewrite(self, loop: Loop) -> bool:
        """Divides one loop, where the schedule wants that."""
        if is_divided(loop.node) or not loop.inputs:
            return False
        steps = self.steps if self.kind == "chunk" else block_steps(loop)
        if steps is None or (isinstance(loop.length, int) and loop.length <= steps):
            return False
        try:
            chunk(loop, steps)
        except NotChunkable as reason:
            self.refuse(loop.node, str(reason))
            return False
        return True


def chunk(loop: Loop, steps: int) -> ir.Node:
    """Divides a loop into blocks.

    Args:
        loop: the loop; its node is replaced.
        steps: steps per block, K.

    Returns:
        The Scan over blocks.

    Raises:
        NotChunkable: a rank is not known, or the number of steps is not while blocks are very long.
    """
    return _Chunking(loop, steps).run()


@dataclasses.dataclass
class _Walk:
    """A sequence that the loop walks along, time on axis 0, and what it is joined from, see `segments_of`."""

    sequence: ir.Value
    reverse: bool
    segments: list[Segment]


@dataclasses.dataclass
class _Fed:
    """What the outer loop walks along: its body's input, and the sequence of blocks or of their numbers."""

    parameter: ir.Value
    sequence: ir.Value
    reverse: bool = False


class _Chunking:
    def __init__(self, loop: Loop, steps: int) -> None:
        self.loop = loop
        self.steps = steps
        self.space = loop.space
        self.facts = loop.facts
        self.names: Names = loop.names
        self.length = loop.length
        self.is_even = steps == 1 or (isinstance(self.length, int) and self.length % steps == 0)
        self.outside = loop.before("blocks")
        self.graph = ir.Graph([], [], nodes=[], name=self.names.fresh(loop.scope("blocks")))
        stands_for = provenance.sources(loop.node)
        self.inside = Builder(loop.space, self.graph, scope=loop.scope("block"), stands_for=stands_for)

    def run(self) -> ir.Node:
        """Builds the two loops in the place of the one."""
        loop = self.loop
        roles: list[ScanInput | ScanOutput] = [*loop.inputs, *loop.outputs]
        for role in roles:
            if role.axis != 0 and self._rank(role) is None:
                raise NotChunkable("the rank of a sequence is not known, and its axis of time is not the first")
        if not isinstance(self.length, int) and self.steps > MOST_PADDED:
            raise NotChunkable(
                f"the number of steps is not known, and blocks of {self.steps} would be padded to that size"
            )
        if isinstance(self.length, int) and self.length > MOST_STEPS:
            raise NotChunkable(f"{self.length} steps, rounded up to blocks, are more than int64 counts")
        if not self.is_even and any(self._rank(output) is None for output in loop.outputs):
            raise NotChunkable("the rank of an output is not known, so that a shorter last block cannot be padded")
        dtypes = {self.facts.dtype(output.step) for output in loop.outputs}
        if not self.is_even and dtypes - PADDED:
            raise NotChunkable("onnxruntime cannot pad a shorter last block of one of the outputs' dtypes")
        walks = [self._walk(x) for x in loop.inputs]
        states = [self._parameter(state.initial.type, self.facts.shape(state.parameter)) for state in loop.states]
        fed: list[_Fed] = []
        if not self.is_even or any(walk.segments for walk in walks):
            fed.append(self._number_blocks(walks))
        blocks = [self._block(walk, fed) for walk in walks]
        inner = self._inner_loop(states, blocks)
        finals, made = list(inner.outputs[: len(states)]), list(inner.outputs[len(states) :])
        if not self.is_even:
            made = [self._padded(value, output) for value, output in zip(made, loop.outputs, strict=True)]
        if self.steps == 1:
            made = [self.inside.squeeze(value, 0) for value in made]
        self.graph.inputs.extend([*states, *(x.parameter for x in fed)])
        self.graph.outputs.extend([*finals, *made])
        return self._outer_loop(fed)

    def _rank(self, role: ScanInput | ScanOutput) -> int | None:
        """The rank of a sequence."""
        rank = self.facts.rank(role.parameter if isinstance(role, ScanInput) else role.step)
        return self.facts.rank(role.sequence) if rank is None else rank + 1

    def _walk(self, x: ScanInput) -> _Walk:
        rank = self._rank(x)
        first = x.sequence if rank is None else self.outside.move_axis(x.sequence, x.axis, 0, rank)
        return _Walk(first, x.reverse, segments_of(self.facts, first))

    def _parameter(self, type_: ir.TypeProtocol | None, shape: Sequence[Dim | None] | None) -> ir.Value:
        return self.space.value(self.loop.scope("block/input"), type_, shape)

    def _block(self, walk: _Walk, fed: list[_Fed]) -> ir.Value:
        """What the inner loop walks along: a block of a sequence, all of them fed to the outer loop or cut out here."""
        shape = self.facts.shape(walk.sequence)
        inner = self.inside
        if walk.segments or not self.is_even:
            bounds = self.backward if walk.reverse else self.forward
            if not walk.segments:
                return inner.slice(walk.sequence, *bounds, 0)
            block = cut(inner, walk.segments, *bounds)
            return inner.set_shape(block, (self.steps if self.is_even else None, *shape[1:])) if shape else block
        if self.steps == 1:
            parameter = self._parameter(walk.sequence.type, None if shape is None else shape[1:])
            fed.append(_Fed(parameter, walk.sequence, walk.reverse))
            return inner.unsqueeze(parameter, 0)
        e, count = self.outside, self._count()
        split = self._divided(e, e.unsqueeze(walk.sequence, 0), e.ints(count, self.steps))
        if shape is not None:
            e.set_shape(split, (count, self.steps, *shape[1:]))
        parameter = self._parameter(walk.sequence.type, None if shape is None else (self.steps, *shape[1:]))
        fed.append(_Fed(parameter, split, walk.reverse))
        return parameter

    def _count(self) -> int:
        """The number of even blocks."""
        assert isinstance(self.length, int)
        return self.length // self.steps

    def _divided(self, e: Builder, value: ir.Value, steps: Expr) -> ir.Value:
        """A value with other sizes of its first two axes.

        The others stay in their places: a 0 among the sizes that a Reshape asks for means the size in that place.
        """
        rank = self.facts.rank(value)
        rest = e.slice(e.op(std.Shape, value), 2, END, 0) if rank is None else e.ints(*[0] * (rank - 2))
        return e.op(std.Reshape, value, e.op(std.Concat, steps, rest, axis=0))

    def _number_blocks(self, walks: list[_Walk]) -> _Fed:
        """Numbers of the blocks in the order in which they run, and the bounds of a block of each direction."""
        e, inner, steps = self.outside, self.inside, self.steps
        if self.is_even and isinstance(self.length, int):
            self.total = e.ints(self.length)
            numbers = e.constant(np.arange(self._count())).value
        else:
            self.total = e.size(walks[0].sequence, 0)
            self.count = e.op(std.Div, e.op(std.Add, self.total, e.ints(steps - 1)), e.ints(steps))
            numbers = e.op(std.Range, e.constant(0), e.op(std.Squeeze, self.count, e.ints(0)), e.constant(1)).value
        number = self._parameter(ir.TensorType(ir.DataType.INT64), ())
        start = inner.op(std.Mul, inner.unsqueeze(number, 0), inner.ints(steps))
        end = inner.op(std.Add, start, inner.ints(steps))
        if not self.is_even:
            end = inner.op(std.Min, end, self.total)
            self.missing = inner.op(std.Sub, inner.ints(steps), inner.op(std.Sub, end, start))
        self.forward = start, end
        self.backward = inner.op(std.Sub, self.total, end), inner.op(std.Sub, self.total, start)
        return _Fed(number, numbers)

    def _inner_loop(self, states: list[ir.Value], blocks: list[ir.Value]) -> ir.Node:
        """The loop over a block's steps: the original body."""
        old = self.loop.node
        body = old.attributes["body"]
        directions = [int(x.reverse) for x in self.loop.inputs], [int(x.reverse) for x in self.loop.outputs]
        attributes = [
            body,
            ir.AttrInt64("num_scan_inputs", len(blocks)),
            ir.AttrInt64s("scan_input_directions", directions[0]),
            ir.AttrInt64s("scan_output_directions", directions[1]),
        ]
        carried = [state.parameter for state in self.loop.states]
        results = [self._parameter(value.type, self.facts.shape(value)) for value in carried]
        for output in self.loop.outputs:
            shape = self.facts.shape(output.step)
            length = self.steps if self.is_even else None
            results.append(self._parameter(output.step.type, None if shape is None else (length, *shape)))
        old.attributes.pop("body")
        needed = [a for a in attributes if _is_needed(a)]
        node = ir.Node(
            "",
            std.Scan.op_type,
            [*states, *blocks],
            needed,
            outputs=results,
            name=old.name,
            metadata_props={BLOCK: str(self.steps)},
        )
        old.name = self.names.fresh(self.loop.scope("blocks"))
        self.inside.place(node)
        return node

    def _padded(self, value: ir.Value, output: ScanOutput) -> ir.Value:
        """A block's output with K steps, also of a shorter last block."""
        inner = self.inside
        rank = self._rank(output)
        assert rank is not None
        before = [inner.ints(0)] if not output.reverse else [self.missing]
        after = [self.missing] if not output.reverse else [inner.ints(0)]
        rest = [inner.ints(*[0] * (rank - 1))] if rank > 1 else []
        padded = inner.op(std.Pad, value, inner.op(std.Concat, *before, *rest, *after, *rest, axis=0))
        shape = self.facts.shape(value)
        return padded if shape is None else inner.set_shape(padded, (self.steps, *shape[1:]))

    def _outer_loop(self, fed: list[_Fed]) -> ir.Node:
        loop, old = self.loop, self.loop.node
        attributes: list[ir.Attr] = [
            ir.AttrGraph("body", self.graph),
            ir.AttrInt64("num_scan_inputs", len(fed)),
            ir.AttrInt64s("scan_input_directions", [int(x.reverse) for x in fed]),
            ir.AttrInt64s("scan_output_directions", [int(x.reverse) for x in loop.outputs]),
        ]
        results = [self._result(state.final) for state in loop.states]
        results += [self.space.value(loop.scope("output"), x.step.type, None) for x in loop.outputs]
        node = ir.Node(
            "",
            std.Scan.op_type,
            [*(state.initial for state in loop.states), *(x.sequence for x in fed)],
            [a for a in attributes if _is_needed(a)],
            outputs=results,
            name=old.name,
            metadata_props={**old.metadata_props, BLOCKS: str(self.steps)},
        )
        provenance.inherit(node, old)
        self.facts.enter(node)
        loop.graph.insert_before(old, node)
        after = Builder(loop.space, loop.graph, after=node, scope=old.name or "loop")
        for state, value in zip(loop.states, results, strict=False):
            replace(state.final, value, self.space)
        for output, value in zip(loop.outputs, results[len(loop.states) :], strict=True):
            replace(output.sequence, self._joined(after, value, output), self.space)
        detach(old)
        return node

    def _result(self, old: ir.Value) -> ir.Value:
        return self.space.value(old.name or "output", old.type, declared_shape(old))

    def _joined(self, e: Builder, value: ir.Value, output: ScanOutput) -> ir.Value:
        """[blocks, K, ...] as one sequence, without the padding, time on the output's own axis."""
        shape = self.facts.shape(output.step)
        if self.steps == 1:
            return self._along_its_axis(e, value, output)
        if shape is not None:
            e.set_shape(value, (None, self.steps, *shape))
        if isinstance(self.length, int):
            padded = e.ints(1, -(-self.length // self.steps) * self.steps)
        else:
            padded = e.op(std.Concat, e.ints(1), e.op(std.Mul, self.count, e.ints(self.steps)), axis=0)
        joined = e.op(std.Squeeze, self._divided(e, value, padded), e.ints(0))
        if shape is not None:
            e.set_shape(joined, (self.length if self.is_even else None, *shape))
        if not self.is_even:
            if output.reverse:
                padding = e.op(std.Sub, e.op(std.Mul, self.count, e.ints(self.steps)), self.total)
                joined = e.slice(joined, padding, END, 0)
            else:
                joined = e.slice(joined, 0, self.total, 0)
            if shape is not None:
                e.set_shape(joined, (self.length, *shape))
        return self._along_its_axis(e, joined, output)

    def _along_its_axis(self, e: Builder, joined: ir.Value, output: ScanOutput) -> ir.Value:
        """A sequence whose time is on axis 0, with it on the output's own axis."""
        if output.axis == 0:
            return joined
        rank = self._rank(output)
        assert rank is not None
        return e.move_axis(joined, 0, output.axis, rank)


def _is_needed(attribute_: ir.Attr) -> bool:
    """Directions that are all forward are left out."""
    return attribute_.type != ir.AttributeType.INTS or any(attribute_.value)
