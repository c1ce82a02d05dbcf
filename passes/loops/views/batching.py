"""Writing one step's node for all steps at once: every operator's rule for one more leading axis, time.

A value of the body is *batched* when it is known outside as a sequence with time on axis 0, and *shared* when one
value serves all steps. A rule emits the node for all steps, or raises `NotBatchable` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Shape

T = TypeVar("T")


class NotBatchable(Exception):  # noqa: N818 (a verdict, not an error)
    """A node cannot be written for all steps at once; the message says why."""


class Batch:
    """Nodes of a loop's body written for all steps.

    Attributes:
        editor: emits outside the loop.
        sequences: batched values of the body and their sequences.
        shared: values of the body that turned out the same at every step, and their outer values.
    """

    def __init__(self, editor: Builder) -> None:
        self.editor = editor
        self.sequences: dict[ir.Value, ir.Value] = {}
        self.shared: dict[ir.Value, ir.Value] = {}

    @property
    def facts(self) -> Facts:
        """What is known of the model's values."""
        return self.editor.facts

    def is_batched(self, value: ir.Value | None) -> bool:
        """Whether a value of the body is known as a sequence."""
        return value in self.sequences

    def outer(self, value: ir.Value | None) -> ir.Value | None:
        """The outer value: the sequence of a batched one, else the value itself."""
        if value is None:
            return None
        return self.sequences.get(value, self.shared.get(value, value))

    def write(self, node: ir.Node) -> None:
        """Emits a node for all steps and records its outputs.

        Raises:
            NotBatchable: the operator has no rule, or the operands do not fit it.
        """
        view = self.facts.view(node)
        rule = None if view is None else batches.of(type(view))
        if rule is None:
            raise NotBatchable(f"no rule to run {node.domain or 'ai.onnx'}.{node.op_type} over all steps at once")
        if not any(self.is_batched(value) for value in node.inputs):
            raise NotBatchable("nothing that it reads is a sequence")
        results = rule(self, view)
        if isinstance(view, std.Shape):
            self.shared[view.output] = results[0]
            return
        for output, sequence in zip(node.outputs, results, strict=True):
            shape = self.facts.shape(output)
            self.sequences[output] = sequence if shape is None else self.editor.set_shape(sequence, (None, *shape))

    def shape(self, value: ir.Value | None) -> Shape:
        """The shape of one step's value."""
        return known(self.facts.shape(value), f"the rank of '{value.name if value is not None else ''}'")

    def rank(self, value: ir.Value | None) -> int:
        """The rank of one step's value."""
        return len(self.shape(value))

    def require_shared(self, op: std.Standard, first: int = 1) -> None:
        """Demands that operands, from one on, are the same at every step."""
        for position, value in enumerate(op.inputs[first:], first):
            if self.is_batched(value):
                raise NotBatchable(f"operand {position} of {op.op_type} differs from step to step")

    def aligned(self, value: ir.Value | None, rank: int) -> ir.Value | None:
        """A batched operand with axes of size 1 put in so that broadcasting leaves time alone."""
        outer = self.outer(value)
        if not self.is_batched(value) or outer is None:
            return outer
        missing = rank - self.rank(value)
        return self.editor.unsqueeze(outer, *range(1, 1 + missing))

    def spread(self, value: ir.Value, like: ir.Value) -> ir.Value:
        """A shared value repeated for every step; `like` is any batched value of the body."""
        if self.is_batched(value):
            return self.sequences[value]
        outer = self.outer(value)
        assert outer is not None
        rank = self.rank(value)
        sizes = self.editor.size(self.sequences[like], 0)
        if rank:
            sizes = self.editor.op(std.Concat, sizes, self.editor.ints(*[1] * rank), axis=0)
        return self.editor.op(std.Expand, self.editor.unsqueeze(outer, 0), sizes)

    def again(self, op: std.Standard, *inputs: Expr | ir.Value | None, **changed: Any) -> Sequence[ir.Value]:
        """Emits a node of the same operator with other inputs; `changed` attributes replace the node's own."""
        return self.editor.again(op.node, inputs, **changed).outputs


Rule = Callable[[Batch, Any], Sequence[ir.Value]]
batches: std.Facet[Rule] = std.Facet("batching")


def known(found: T | None, what: str) -> T:
    """Demands that something is known before the run."""
    if found is None:
        raise NotBatchable(f"{what} is not known")
    return found


@batches(std.Elementwise)
def _elementwise(b: Batch, op: std.Elementwise) -> Sequence[ir.Value]:
    rank = max(b.rank(value) for value in op.inputs if value is not None)
    return b.again(op, *(b.aligned(value, rank) for value in op.inputs))


@batches(std.PRelu)
def _prelu(b: Batch, op: std.PRelu) -> Sequence[ir.Value]:
    if not b.is_batched(op.operand(0)):
        raise NotBatchable("its slope differs from step to step and what it is applied to does not")
    return _elementwise(b, op)


@batches(std.Unary)
def _unary(b: Batch, op: std.Unary) -> Sequence[ir.Value]:
    b.require_shared(op)
    return b.again(op, *map(b.outer, op.inputs))


@batches(std.MatMul)
def _matmul(b: Batch, op: std.MatMul) -> Sequence[ir.Value]:
    ranks = b.rank(op.a), b.rank(op.b)
    if min(ranks) < 2:
        raise NotBatchable("a product with a vector")
    if b.is_batched(op.a) and not b.is_batched(op.b) and ranks[1] == 2:
        return b.again(op, b.outer(op.a), b.outer(op.b))
    return b.again(op, b.aligned(op.a, max(ranks)), b.aligned(op.b, max(ranks)))


@batches(std.Concat)
def _concat(b: Batch, op: std.Concat) -> Sequence[ir.Value]:
    like = next(value for value in op.parts if b.is_batched(value))
    axis = known(op.axis, "its axis")
    return b.again(op, *(b.spread(value, like) for value in op.parts), axis=axis + 1)


@batches(std.AlongAxis, std.Arg, std.Split)
def _along_axis(b: Batch, op: std.AlongAxis | std.Arg | std.Split) -> Sequence[ir.Value]:
    b.require_shared(op)
    return b.again(op, *map(b.outer, op.inputs), axis=known(op.axis, "its axis") + 1)


@batches(std.Cumulative)
def _cumulative(b: Batch, op: std.Cumulative) -> Sequence[ir.Value]:
    return b.again(op, b.outer(op.data), b.editor.constant(known(op.axis, "its axis") + 1))


@batches(std.Slice)
def _slice(b: Batch, op: std.Slice) -> Sequence[ir.Value]:
    b.require_shared(op)
    data, starts, ends = (b.outer(value) for value in op.inputs[:3])
    # Of one integer type, as the bounds are.
    axes = b.editor.constant(_behind_time(op.axes), known(op.dtype(1), "its dtype"))
    return b.again(op, data, starts, ends, axes, *map(b.outer, op.inputs[4:]))


def _behind_time(axes: Sequence[int] | None) -> list[int]:
    return [axis + 1 for axis in known(axes, "one of its axes")]


@batches(std.Gather)
def _gather(b: Batch, op: std.Gather) -> Sequence[ir.Value]:
    axis = known(op.axis, "its axis")
    data, indices = b.outer(op.data), b.outer(op.indices)
    if b.is_batched(op.data) and b.is_batched(op.indices):
        raise NotBatchable("both data and indices of Gather differ from step to step")
    if b.is_batched(op.data):
        return b.again(op, data, indices, axis=axis + 1)
    (result,) = b.again(op, data, indices, axis=axis)
    return [b.editor.move_axis(result, axis, 0, b.rank(op.data) + b.rank(op.indices))]


@batches(std.Transpose)
def _transpose(b: Batch, op: std.Transpose) -> Sequence[ir.Value]:
    return b.again(op, b.outer(op.data), perm=[0, *_behind_time(op.perm)])


@batches(std.Reshape)
def _reshape(b: Batch, op: std.Reshape) -> Sequence[ir.Value]:
    b.require_shared(op)
    shape = b.facts.shape(op.output)
    sizes = [dim for dim in shape or () if isinstance(dim, int) and dim > 0]
    if shape is not None and len(sizes) == len(shape):
        # Sizes instead of a -1: with no steps at all, -1 has no unique answer.
        target = b.editor.ints(0, *sizes).value
    elif op.allowzero:
        raise NotBatchable("allowzero leaves no way to copy the number of steps")
    else:
        target = b.editor.op(std.Concat, b.editor.ints(0), b.outer(op.target), axis=0)
    return b.again(op, b.outer(op.data), target, allowzero=None)


@batches(std.Squeeze)
def _squeeze(b: Batch, op: std.Squeeze) -> Sequence[ir.Value]:
    axes = _behind_time(op.axes)
    if not axes:
        # Empty axes would take out time as well, where there is one step.
        return [b.editor.op(std.Identity, b.outer(op.data))]
    return b.again(op, b.outer(op.data), b.editor.ints(*axes))


@batches(std.Unsqueeze)
def _unsqueeze(b: Batch, op: std.Unsqueeze) -> Sequence[ir.Value]:
    return b.again(op, b.outer(op.data), b.editor.ints(*_behind_time(op.axes)))


@batches(std.Reduction)
def _reduce(b: Batch, op: std.Reduction) -> Sequence[ir.Value]:
    e, data, axes = b.editor, b.outer(op.data), _behind_time(op.axes)
    assert data is not None
    if axes:
        return [e.reduce(type(op), data, axes, keepdims=op.keepdims)]
    if op.attribute("noop_with_empty_axes", 0):
        # Elementwise: what is not summed is squared all the same.
        return b.again(op, b.outer(op.data))
    # A scalar is the one element of a vector.
    return [e.reduce(type(op), e.unsqueeze(data, 1), [1], keepdims=False)]


@batches(std.Expand)
def _expand(b: Batch, op: std.Expand) -> Sequence[ir.Value]:
    b.require_shared(op)
    (length,) = b.facts.shape(op.target) or (None,)
    if not isinstance(length, int):
        raise NotBatchable("the rank that Expand makes is not known")
    rank = max(b.rank(op.data), length)
    ones = b.editor.ints(*[1] * (1 + rank - length))
    return b.again(op, b.aligned(op.data, rank), b.editor.op(std.Concat, ones, b.outer(op.target), axis=0))


@batches(std.Pad)
def _pad(b: Batch, op: std.Pad) -> Sequence[ir.Value]:
    b.require_shared(op)
    before, behind = zip((0, 0), *known(op.pads, "what it pads"), strict=True)
    return b.again(op, b.outer(op.data), b.editor.ints(*before, *behind), b.outer(op.value))


@batches(std.Shape)
def _shape(b: Batch, op: std.Shape) -> Sequence[ir.Value]:
    start, stop, _ = op.bounds.indices(b.rank(op.data))
    return [b.editor.slice(b.editor.op(std.Shape, b.outer(op.data)), start + 1, max(start, stop) + 1, 0)]
