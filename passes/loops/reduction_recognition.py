"""Reduction recognition: a carried sum becomes a reduction behind the loop, one of products a single product.

Precondition: a state whose only use is that the step adds something to it. The sum over all steps is taken of what is
added, and moves inward through linear operations: a sum of `a[t]' @ b[t]` is one product of `[T*K, M]'` and `[T*K,
N]`, a sum of `e[t] @ w` is the sum of `e` times `w`.

Postcondition: the state is gone; what was added is no longer computed step by step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.batch_axis_contraction import inner_beside
from lstm_lower.passes.loops.gemm_opening import GemmOpening
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.views.batching import NotBatchable, known
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop, State
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.sequences import Sequences

# What is added may be kept for all steps when it is at most this many times larger than what it is computed from.
LARGEST_GROWTH = 4
# What onnxruntime sums up as its Add does; integers it sums up as doubles, which are rounded and do not wrap.
SUMMED = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


@dataclasses.dataclass(frozen=True)
class Addend:
    """One thing that a step adds to an accumulator."""

    value: ir.Value
    negative: bool


class ReductionRecognition(LoopPass):
    """Turns carried sums into reductions and products after the loop."""

    # Work behind the loop cannot read what the body makes, though it be the same at every step.
    needs = (GemmOpening, InvariantHoisting)

    def rewrite(self, loop: Loop) -> bool:
        """Sinks the accumulators of one loop."""
        if not loop.inputs:
            return False
        modified = False
        for state in list(loop.states):
            dependence = Dependence(loop)
            addends = self._addends(loop, dependence, state)
            if addends is None:
                continue
            sequences = Sequences(loop, loop.after("sum"))
            outputs = list(loop.outputs)
            try:
                total = _Total(loop, dependence, sequences).of_addends(state, addends)
            except NotBatchable as reason:
                self.refuse(state.final, f"the carried sum stays: {reason}")
                sequences.editor.discard_unread()
                loop.outputs = outputs
                continue
            loop.drop_state(state)
            replace(state.final, total, loop.space)
            sequences.editor.discard_unread()
            loop.commit()
            modified = True
        return modified

    def _addends(self, loop: Loop, dependence: Dependence, state: State) -> list[Addend] | None:
        """What each step adds to a state, or `None` when the state is more than a sum."""
        found: list[Addend] = []
        results = list(loop.results())
        value, negative = state.parameter, False
        while value is not state.update:
            readers = dependence.readers(value)
            if len(readers) != 1 or len(value.uses()) != 1 or value in results:
                if found:
                    self.refuse(state.final, "a carried sum whose value is also read inside the loop")
                return None
            (node,) = readers
            view = loop.facts.view(node)
            if not isinstance(view, std.Add | std.Sub | std.Sum | std.Identity):
                return None
            subtracts = isinstance(view, std.Sub)
            index = next(position for position, operand in enumerate(node.inputs) if operand is value)
            if subtracts and index == 1:
                return None
            others = [operand for position, operand in enumerate(node.inputs) if position != index]
            found += [Addend(x, negative != subtracts) for x in others if x is not None]
            value = node.outputs[0]
        if results.count(state.update) != 1 or dependence.readers(state.update):
            if found:
                self.refuse(state.final, "every step's value of the carried sum is read, in the loop or behind it")
            return None
        if any(self._reads(dependence, addend.value, state.parameter) for addend in found):
            return None
        return found or None

    @staticmethod
    def _reads(dependence: Dependence, value: ir.Value, parameter: ir.Value) -> bool:
        needed = dependence.needed_by([value])
        return value is parameter or any(parameter in dependence.operands(node) for node in needed)


class _Total:
    """Emits the sum over all steps of a value of the body."""

    def __init__(self, loop: Loop, dependence: Dependence, sequences: Sequences) -> None:
        self.loop = loop
        self.dependence = dependence
        self.sequences = sequences
        self.editor: Builder = sequences.editor
        self.facts: Facts = loop.facts

    def of_addends(self, state: State, addends: list[Addend]) -> ir.Value:
        """The state's final value."""
        result = state.initial
        for addend in addends:
            total = self.of(addend.value)
            result = self.editor.op(std.Sub if addend.negative else std.Add, result, total)
        # A state keeps its shape.
        shape = self.facts.shape(state.initial)
        return result if shape is None else self.editor.set_shape(result, shape)

    def of(self, value: ir.Value) -> ir.Value:
        """The sum of a value over all steps."""
        if self.dependence.level(value) == Level.INVARIANT:
            return self._times_steps(value)
        view = self.facts.maker(value)
        total = self._through(view, value) if view is not None and view.node.graph is self.loop.body else None
        return self._reduced(value, [], keepdims=False) if total is None else total

    def _through(self, op: std.Standard, value: ir.Value) -> ir.Value | None:
        """The sum moved inward through a linear node; `None` where that gains nothing."""
        e = self.editor
        match op:
            case std.Add() | std.Sub() if self._same_shape(op.inputs):
                return e.op(type(op), *(self.of(x) for x in op.inputs if x is not None))
            case std.Neg() | std.Identity():
                return e.again(op.node, [self.of(op.data)]).outputs[0]
            case std.Moving():
                return self._moved(op, value)
            case std.Mul():
                return self._scaled(op)
            case std.MatMul():
                return self._product(op.a, op.b)
            case std.ReduceSum():
                return self._sum_of_sums(op)
        return None

    def _moved(self, op: std.Moving, value: ir.Value) -> ir.Value | None:
        """The sum through a node that only moves elements, in the same way at every step."""
        if self.facts.elements(op.data) > self.facts.elements(value):
            return None
        if any(self.dependence.level(x) != Level.INVARIANT for x in op.inputs[1:]):
            return None
        made = self.editor.again(op.node, [self.of(op.data), *op.inputs[1:]]).outputs
        return made[op.node.outputs.index(value)]

    def _same_shape(self, values: Sequence[ir.Value | None]) -> bool:
        return all(self.facts.same_shape(values[0], value) for value in values)

    def _scaled(self, op: std.Mul) -> ir.Value | None:
        a, b = op.inputs
        assert a is not None
        assert b is not None
        for value, factor in ((a, b), (b, a)):
            if self.dependence.level(factor) == Level.INVARIANT and self.dependence.level(value) != Level.INVARIANT:
                return self.editor.op(std.Mul, self.of(value), factor)
        return None

    def _product(self, a: ir.Value, b: ir.Value) -> ir.Value | None:
        """The sum of products: one product whose inner axis runs over steps and the products' own inner axis."""
        e, rows, columns = self.editor, self.facts.rank(a), self.facts.rank(b)
        if rows is None or columns is None or min(rows, columns) < 2:
            return None
        if self.dependence.level(b) == Level.INVARIANT:
            return e.op(std.MatMul, self.of(a), b)
        if self.dependence.level(a) == Level.INVARIANT:
            return e.op(std.MatMul, a, self.of(b))
        # Matrices as [T*K, .]: time and the inner axis lie side by side there, so that nothing has to be copied.
        if rows == 2:
            left = e.transpose(self._rows(a, inner_first=False), [1, 0])
        else:
            left = inner_beside(e, self._stacked(a), 0, rows)
        if columns == 2:
            return e.op(std.MatMul, left, self._rows(b, inner_first=True))
        return e.op(std.MatMul, left, inner_beside(e, self._stacked(b), 0, columns - 1))

    def _stacked(self, value: ir.Value) -> ir.Value:
        self.sequences.stack(value)
        return self.sequences.batch.sequences[value]

    def _rows(self, value: ir.Value, *, inner_first: bool) -> ir.Value:
        """A matrix of every step as [T*K, N], K its inner axis; `inner_first` when the matrix is [K, N], not [N, K]."""
        view = self.facts.maker(value)
        if isinstance(view, std.Transpose) and view.perm == (1, 0) and view.node.graph is self.loop.body:
            return self._rows(view.data, inner_first=not inner_first)
        sequence = self._stacked(value)
        if not inner_first:
            sequence = self.editor.transpose(sequence, [0, 2, 1])
        return self.editor.op(std.Flatten, sequence, axis=2)

    def _sum_of_sums(self, op: std.ReduceSum) -> ir.Value | None:
        axes = op.axes
        if axes is None:
            return None
        return self._reduced(op.data, axes, keepdims=op.keepdims) if axes else self.of(op.data)

    def _reduced(self, value: ir.Value, axes: Sequence[int], *, keepdims: bool) -> ir.Value:
        """The sum over time and over axes of the step's value.

        Each step is summed up by itself, as the loop did: onnxruntime adds up what it is given one after another, and
        thousands of numbers of one sign lose 1e-4. All axes but the last at once are a product's matter, whose sums are
        in blocks.
        """
        e = self.editor
        dtype = self.facts.dtype(value)
        if dtype not in SUMMED:
            raise NotBatchable(f"onnxruntime has no exact sum over {dtype}")
        self._check_growth(value)
        stacked, later = self._stacked(value), [axis + 1 for axis in axes]
        rank = self.facts.rank(value)
        if axes and (rank is None or sorted(axes) != list(range(rank - 1))):
            steps = e.reduce(std.ReduceSum, stacked, later, keepdims=keepdims)
            return e.reduce(std.ReduceSum, steps, [0], keepdims=False)
        keepdims = keepdims and bool(axes)
        total = e.reduce(std.ReduceSum, stacked, [0, *later], keepdims=keepdims)
        return e.squeeze(total, 0) if keepdims else total

    def _check_growth(self, value: ir.Value) -> None:
        producer = value.producer()
        if producer is None or producer.graph is not self.loop.body or any(x.step is value for x in self.loop.outputs):
            return
        read = sum(map(self.facts.elements, self.dependence.operands(producer)))
        if self.facts.elements(value) > LARGEST_GROWTH * max(read, 1024):
            raise NotBatchable("its terms are many times larger than what they are computed from")

    def _times_steps(self, value: ir.Value) -> ir.Value:
        e, x = self.editor, self.loop.inputs[0]
        dtype = known(self.facts.dtype(value), f"the dtype of '{value.name}'")
        steps = e.squeeze(e.size(x.sequence, x.axis), 0)
        return e.op(std.Mul, value, e.op(std.Cast, steps, to=int(dtype)))
