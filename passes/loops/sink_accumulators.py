"""Sinking accumulators: a carried sum becomes a reduction behind the loop, a carried sum of products one product.

Precondition: a state whose only use is that the step adds something to it. The sum over all steps is taken of what is
added, and moves inward through linear operations: a sum of `a[t]' @ b[t]` is one product of `[T*K, M]'` and `[T*K,
N]`, a sum of `e[t] @ w` is the sum of `e` times `w`.

Postcondition: the state is gone; what was added is no longer computed step by step.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.emit import Emitter, replace
from lstm_lower.passes.infer import attribute, constant_of, shape_of
from lstm_lower.passes.loops.batched_products import inner_beside
from lstm_lower.passes.loops.code_motion import hoist_invariant
from lstm_lower.passes.loops.views.base import LoopPass
from lstm_lower.passes.loops.views.batching import NotBatchable
from lstm_lower.passes.loops.views.dependence import Dependence, Level, elements, rank_of
from lstm_lower.passes.loops.views.loop import Loop, State
from lstm_lower.passes.loops.views.sequences import Sequences

# What is added may be kept for all steps when it is at most this many times larger than what it is computed from.
LARGEST_GROWTH = 4
# What onnxruntime sums up; its Add takes more.
SUMMED = frozenset(
    {
        *(ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16),
        *(ir.DataType.INT32, ir.DataType.INT64),
    }
)
# Operators that lay out the elements of their first operand anew, whatever these are.
MOVING = frozenset({"Unsqueeze", "Squeeze", "Reshape", "Flatten", "Expand", "Slice"})


@dataclasses.dataclass(frozen=True)
class Addend:
    """One thing that a step adds to an accumulator."""

    value: ir.Value
    negative: bool


class SinkAccumulators(LoopPass):
    """Turns carried sums into reductions and products behind the loop."""

    name = "sink_accumulators"

    def rewrite(self, loop: Loop) -> bool:
        """Sinks the accumulators of one loop."""
        if loop.is_block_loop or not loop.inputs:
            return False
        # Work behind the loop cannot read what the body makes, though it be the same at every step.
        modified = hoist_invariant(loop)
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
            if node.domain != "" or node.op_type not in ("Add", "Sub", "Sum", "Identity"):
                return None
            index = next(position for position, operand in enumerate(node.inputs) if operand is value)
            if node.op_type == "Sub" and index == 1:
                return None
            others = [operand for position, operand in enumerate(node.inputs) if position != index]
            found += [Addend(x, negative != (node.op_type == "Sub")) for x in others if x is not None]
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
        self.editor: Emitter = sequences.editor

    def of_addends(self, state: State, addends: list[Addend]) -> ir.Value:
        """The state's final value."""
        result = state.initial
        for addend in addends:
            total = self.of(addend.value)
            result = self.editor.op(std.Sub if addend.negative else std.Add, result, total)
        if shape_of(result) is None or None in (shape_of(result) or ()):
            result.shape = state.final.shape
        return result

    def of(self, value: ir.Value) -> ir.Value:
        """The sum of a value over all steps."""
        if self.dependence.level(value) == Level.INVARIANT:
            return self._times_steps(value)
        node = value.producer()
        if node is not None and node.graph is self.loop.body and node.domain == "":
            total = self._through(node)
            if total is not None:
                total.shape = value.shape if total.shape is None else total.shape
                return total
        return self._reduced(value, [], keepdims=False)

    def _through(self, node: ir.Node) -> ir.Value | None:
        """The sum moved inward through a linear node; `None` where that gains nothing."""
        e = self.editor
        op, inputs = node.op_type, [value for value in node.inputs if value is not None]
        if op in ("Add", "Sub") and self._same_rank(inputs):
            return e.op(std.VIEWS[op], *(self.of(x) for x in inputs))
        if op == "Neg" or op == "Identity":
            return e.op(std.VIEWS[op], self.of(inputs[0]))
        if op == "Transpose":
            return e.op(std.VIEWS[op], self.of(inputs[0]), **dict(node.attributes.items()))
        if op in MOVING:
            return self._moved(node, inputs)
        if op == "Mul":
            return self._scaled(inputs)
        if op == "MatMul":
            return self._product(inputs[0], inputs[1], transposed=(False, False), node=node)
        if op == "Gemm":
            return self._gemm(node, inputs)
        if op == "ReduceSum":
            return self._sum_of_sums(node)
        return None

    def _moved(self, node: ir.Node, inputs: list[ir.Value]) -> ir.Value | None:
        """The sum through a node that only moves elements, in the same way at every step."""
        if len(inputs) != len(node.inputs) or elements(inputs[0]) > elements(node.outputs[0]):
            return None
        if any(self.dependence.level(value) != Level.INVARIANT for value in inputs[1:]):
            return None
        total = self.of(inputs[0])
        return self.editor.op(std.VIEWS[node.op_type], total, *inputs[1:], **dict(node.attributes.items()))

    def _same_rank(self, values: list[ir.Value]) -> bool:
        shapes = [shape_of(value) for value in values]
        return shapes[0] is not None and all(shape == shapes[0] for shape in shapes)

    def _scaled(self, inputs: list[ir.Value]) -> ir.Value | None:
        for value, factor in (inputs, inputs[::-1]):
            if self.dependence.level(factor) == Level.INVARIANT and self.dependence.level(value) != Level.INVARIANT:
                return self.editor.op(std.Mul, self.of(value), factor)
        return None

    def _gemm(self, node: ir.Node, inputs: list[ir.Value]) -> ir.Value | None:
        flags = (bool(attribute(node, "transA", 0)), bool(attribute(node, "transB", 0)))
        result = self._product(inputs[0], inputs[1], transposed=flags, node=node)
        if result is None:
            return None
        dtype = inputs[0].dtype
        if dtype is None:
            raise NotBatchable("its dtype is not known")
        alpha, beta = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
        if alpha != 1.0:
            result = self.editor.op(std.Mul, result, self.editor.constant(alpha, dtype))
        if len(inputs) > 2:
            added = self.of(inputs[2])
            if beta != 1.0:
                added = self.editor.op(std.Mul, added, self.editor.constant(beta, dtype))
            result = self.editor.op(std.Add, result, added)
        return result

    def _product(self, a: ir.Value, b: ir.Value, *, transposed: tuple[bool, bool], node: ir.Node) -> ir.Value | None:
        """The sum of products: one product whose inner axis runs over steps and the products' own inner axis."""
        e = self.editor
        if (rank_of(a), rank_of(b)) != (2, 2):
            return None if any(transposed) else self._batched_product(a, b)
        levels = self.dependence.level(a), self.dependence.level(b)
        if Level.INVARIANT in levels:
            left = a if levels[0] == Level.INVARIANT else self.of(a)
            right = b if levels[1] == Level.INVARIANT else self.of(b)
            if any(transposed):
                flags = {"transA": int(transposed[0]), "transB": int(transposed[1])}
                return e.op(std.Gemm, left, right, **flags)
            return e.op(std.MatMul, left, right)
        # Both sides as [T*K, .]: time and the inner axis lie side by side there, so that nothing has to be copied.
        left = self._rows(a, inner_first=transposed[0])
        right = self._rows(b, inner_first=not transposed[1])
        if a.dtype is not None and a.dtype.is_floating_point():
            result = e.op(std.Gemm, left, right, transA=1)
        else:
            result = e.op(std.MatMul, e.op(std.Transpose, left, perm=[1, 0]), right)
        result.shape = node.outputs[0].shape
        return result

    def _batched_product(self, a: ir.Value, b: ir.Value) -> ir.Value | None:
        """The sum of products of matrices with axes before them."""
        e = self.editor
        rows, columns = rank_of(a), rank_of(b)
        if rows is None or columns is None or min(rows, columns) < 2:
            return None
        levels = self.dependence.level(a), self.dependence.level(b)
        if levels[1] == Level.INVARIANT:
            return e.op(std.MatMul, self.of(a), b)
        if levels[0] == Level.INVARIANT:
            return e.op(std.MatMul, a, self.of(b))
        if rows == 2:
            left = e.op(std.Transpose, self._rows(a, inner_first=False), perm=[1, 0])
        else:
            left = inner_beside(e, self._stacked(a), 0, rows)
        beside = columns - 1
        right = self._rows(b, inner_first=True) if columns == 2 else inner_beside(e, self._stacked(b), 0, beside)
        return e.op(std.MatMul, left, right)

    def _stacked(self, value: ir.Value) -> ir.Value:
        self.sequences.stack(value)
        return self.sequences.batch.sequences[value]

    def _rows(self, value: ir.Value, *, inner_first: bool) -> ir.Value:
        """A matrix of every step as [T*K, N], K its inner axis; `inner_first` when the matrix is [K, N], not [N, K]."""
        producer = value.producer()
        if producer is not None and producer.graph is self.loop.body and producer.op_type == "Transpose":
            source = producer.inputs[0]
            if source is not None and rank_of(source) == 2:
                return self._rows(source, inner_first=not inner_first)
        sequence = self._stacked(value)
        if not inner_first:
            sequence = self.editor.op(std.Transpose, sequence, perm=[0, 2, 1])
        return self.editor.op(std.Flatten, sequence, axis=2)

    def _sum_of_sums(self, node: ir.Node) -> ir.Value | None:
        value = node.inputs[0]
        assert value is not None
        rank = rank_of(value)
        given = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
        if rank is None or (len(node.inputs) > 1 and node.inputs[1] is not None and given is None):
            return None
        if given is None or given.size == 0:
            if attribute(node, "noop_with_empty_axes", 0):
                return self.of(value)
            axes = list(range(rank))
        else:
            axes = [int(axis) % rank for axis in given.reshape(-1)]
        if self.dependence.level(value) == Level.INVARIANT:
            return None
        return self._reduced(value, axes, keepdims=bool(attribute(node, "keepdims", 1)))

    def _reduced(self, value: ir.Value, axes: list[int], *, keepdims: bool) -> ir.Value:
        """The sum over time and over axes of the step's value."""
        e = self.editor
        if value.dtype not in SUMMED:
            raise NotBatchable(f"onnxruntime has no sum over {value.dtype}")
        self._check_growth(value)
        sequence = self._stacked(value)
        if not keepdims or not axes:
            return e.op(std.ReduceSum, sequence, e.ints(0, *(axis + 1 for axis in axes)), keepdims=0)
        kept = e.op(std.ReduceSum, sequence, e.ints(0, *(axis + 1 for axis in axes)), keepdims=1)
        return e.op(std.Squeeze, kept, e.ints(0))

    def _check_growth(self, value: ir.Value) -> None:
        producer = value.producer()
        if producer is None or producer.graph is not self.loop.body or any(x.step is value for x in self.loop.outputs):
            return
        read = sum(elements(operand) for operand in self.dependence.operands(producer))
        if elements(value) > LARGEST_GROWTH * max(read, 1024):
            raise NotBatchable("what it adds is many times larger than what that is computed from")

    def _times_steps(self, value: ir.Value) -> ir.Value:
        dtype = value.dtype
        if dtype is None:
            raise NotBatchable(f"the dtype of '{value.name}' is not known")
        x = self.loop.inputs[0]
        axis = x.axis
        if axis < 0:
            rank = self.loop.element_rank(x)
            if rank is None:
                raise NotBatchable(f"the rank of '{x.sequence.name}' is not known")
            axis %= rank + 1
        e = self.editor
        steps = e.op(std.Squeeze, e.op(std.Gather, e.op(std.Shape, x.sequence), e.ints(axis), axis=0), e.ints(0))
        return e.op(std.Mul, value, e.op(std.Cast, steps, to=int(dtype)))
