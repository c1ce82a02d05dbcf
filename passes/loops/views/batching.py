"""Writing one step's node for all steps at once: every operator's rule for one more leading axis, time.

A value of the body is *batched* when it is known outside as a sequence with time on axis 0, and *shared* when one
value serves all steps. A rule emits the node for all steps, or raises `NotBatchable` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.emit import END, Emitter
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.graph.values import stated
from lstm_lower.passes.infer import attribute, constant_of, shape_of
from lstm_lower.passes.loops.views.dependence import rank_of


class NotBatchable(Exception):  # noqa: N818 (a verdict, not an error)
    """A node cannot be written for all steps at once; the message says why."""


class Batch:
    """Nodes of a loop's body written for all steps.

    Attributes:
        editor: emits outside the loop.
        sequences: batched values of the body and their sequences.
        shared: values of the body that turned out the same at every step, and their outer values.
    """

    def __init__(self, editor: Emitter) -> None:
        self.editor = editor
        self.sequences: dict[ir.Value, ir.Value] = {}
        self.shared: dict[ir.Value, ir.Value] = {}

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
        if node.domain not in ("", "ai.onnx") or any(True for _ in subgraphs_of(node)):
            raise NotBatchable(f"no rule to run {node.domain or 'ai.onnx'}.{node.op_type} over all steps at once")
        if not any(self.is_batched(value) for value in node.inputs):
            raise NotBatchable("nothing that it reads is a sequence")
        rule = _RULES.get(node.op_type)
        if rule is None:
            raise NotBatchable(f"no rule to run {node.op_type} over all steps at once")
        if node.op_type == "Shape":
            self.shared[node.outputs[0]] = rule(self, node)[0]
            return
        results = rule(self, node)
        length = next(
            (s[0] for v in node.inputs if self.is_batched(v) and (s := shape_of(self.outer(v))) is not None), None
        )
        for output, sequence in zip(node.outputs, results, strict=True):
            step_shape = shape_of(output)
            if step_shape is not None:
                sequence.shape = stated((length, *step_shape))
            if sequence.type is None:
                sequence.type = output.type
            self.sequences[output] = sequence

    def rank(self, value: ir.Value | None) -> int:
        """The rank of one step's value."""
        rank = rank_of(value)
        if rank is None:
            raise NotBatchable(f"the rank of '{value.name if value is not None else ''}' is not known")
        return rank

    def constant(self, value: ir.Value | None, what: str) -> np.ndarray[Any, Any]:
        """An operand that has to be a constant."""
        constant = constant_of(value)
        if constant is None:
            raise NotBatchable(f"its {what} are not constant")
        return constant

    def require_shared(self, node: ir.Node, *positions: int) -> None:
        """Demands that operands are the same at every step."""
        for position in positions:
            if position < len(node.inputs) and self.is_batched(node.inputs[position]):
                raise NotBatchable(f"operand {position} of {node.op_type} differs from step to step")

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

    def emit(self, node: ir.Node, inputs: list[ir.Value | None], **changed: Any) -> list[ir.Value]:
        """Emits a node of the same type with other inputs; `changed` attributes replace the node's own."""
        attributes: dict[str, Any] = {**dict(node.attributes.items()), **changed}
        kept = {key: value for key, value in attributes.items() if value is not None}
        return list(self.editor.node(std.VIEWS[node.op_type], inputs, len(node.outputs), **kept).outputs)


Rule = Callable[[Batch, ir.Node], list[ir.Value]]


def _elementwise(b: Batch, node: ir.Node) -> list[ir.Value]:
    rank = max(b.rank(value) for value in node.inputs if value is not None)
    return b.emit(node, [b.aligned(value, rank) for value in node.inputs])


def _prelu(b: Batch, node: ir.Node) -> list[ir.Value]:
    if not b.is_batched(node.inputs[0]):
        raise NotBatchable("its slope differs from step to step and what it is applied to does not")
    return _elementwise(b, node)


def _unary(b: Batch, node: ir.Node) -> list[ir.Value]:
    b.require_shared(node, *range(1, len(node.inputs)))
    return b.emit(node, [b.outer(value) for value in node.inputs])


def _matmul(b: Batch, node: ir.Node) -> list[ir.Value]:
    left, right = node.inputs
    ranks = b.rank(left), b.rank(right)
    if min(ranks) < 2:
        raise NotBatchable("a product with a vector")
    if b.is_batched(left) and not b.is_batched(right) and ranks[1] == 2:
        return b.emit(node, [b.outer(left), b.outer(right)])
    return b.emit(node, [b.aligned(left, max(ranks)), b.aligned(right, max(ranks))])


def _gemm(b: Batch, node: ir.Node) -> list[ir.Value]:
    e = b.editor
    factors: list[ir.Value] = []
    for value, flag in zip(node.inputs[:2], ("transA", "transB"), strict=True):
        outer = b.outer(value)
        assert outer is not None
        if attribute(node, flag, 0):
            outer = e.op(std.Transpose, outer, perm=[0, 2, 1] if b.is_batched(value) else [1, 0])
        factors.append(outer)
    result = e.op(std.MatMul, *factors)
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if dtype is None:
        raise NotBatchable("its dtype is not known")
    alpha, beta = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
    if not alpha or not beta:
        raise NotBatchable("a factor of 0 stands for leaving out, also of what is not finite")
    if alpha != 1.0:
        result = e.op(std.Mul, result, e.constant(alpha, dtype))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        bias = b.aligned(node.inputs[2], 2)
        if beta != 1.0:
            bias = e.op(std.Mul, bias, e.constant(beta, dtype))
        result = e.op(std.Add, result, bias)
    return [result]


def _concat(b: Batch, node: ir.Node) -> list[ir.Value]:
    like = next(value for value in node.inputs if value is not None and b.is_batched(value))
    axis = attribute(node, "axis", 0) % b.rank(like) + 1
    return b.emit(node, [b.spread(value, like) for value in node.inputs if value is not None], axis=axis)


def _shift(axis: int) -> int:
    """An axis counted from the end stays; one counted from the front moves past time."""
    return axis if axis < 0 else axis + 1


def _axis_attribute(default: int) -> Rule:
    def rule(b: Batch, node: ir.Node) -> list[ir.Value]:
        b.require_shared(node, *range(1, len(node.inputs)))
        axis = _shift(attribute(node, "axis", default))
        return b.emit(node, [b.outer(value) for value in node.inputs], axis=axis)

    return rule


def _axes_input(b: Batch, node: ir.Node, position: int) -> ir.Value:
    axes = b.constant(node.inputs[position], "axes")
    return b.editor.constant([_shift(int(axis)) for axis in axes.reshape(-1)], ir.DataType.from_numpy(axes.dtype))


def _slice(b: Batch, node: ir.Node) -> list[ir.Value]:
    b.require_shared(node, 1, 2, 3, 4)
    inputs = [b.outer(value) for value in node.inputs]
    if len(inputs) > 3 and inputs[3] is not None:
        inputs[3] = _axes_input(b, node, 3)
    else:
        starts = b.constant(node.inputs[1], "starts")
        # Of one integer type, as the bounds are.
        inputs[3:4] = [b.editor.constant(range(1, len(starts) + 1), ir.DataType.from_numpy(starts.dtype))]
    return b.emit(node, inputs)


def _gather(b: Batch, node: ir.Node) -> list[ir.Value]:
    data, indices = node.inputs
    axis = attribute(node, "axis", 0)
    if b.is_batched(data) and not b.is_batched(indices):
        return b.emit(node, [b.outer(data), b.outer(indices)], axis=_shift(axis))
    if b.is_batched(data):
        raise NotBatchable("both data and indices of Gather differ from step to step")
    axis %= b.rank(data)
    (result,) = b.emit(node, [b.outer(data), b.outer(indices)], axis=axis)
    return [b.editor.move_axis(result, axis, 0, b.rank(data) + b.rank(indices))]


def _transpose(b: Batch, node: ir.Node) -> list[ir.Value]:
    order = attribute(node, "perm", None) or list(reversed(range(b.rank(node.inputs[0]))))
    return b.emit(node, [b.outer(node.inputs[0])], perm=[0, *(axis + 1 for axis in order)])


def _reshape(b: Batch, node: ir.Node) -> list[ir.Value]:
    b.require_shared(node, 1)
    known = shape_of(node.outputs[0])
    if known is not None and all(isinstance(dim, int) and dim > 0 for dim in known):
        # Sizes instead of a -1: with no steps at all, -1 has no unique answer.
        target = b.editor.ints(0, *[dim for dim in known if isinstance(dim, int)])
    elif attribute(node, "allowzero", 0):
        raise NotBatchable("allowzero leaves no way to copy the number of steps")
    else:
        target = b.editor.op(std.Concat, b.editor.ints(0), b.outer(node.inputs[1]), axis=0)
    return b.emit(node, [b.outer(node.inputs[0]), target], allowzero=None)


def _squeeze(b: Batch, node: ir.Node) -> list[ir.Value]:
    if len(node.inputs) > 1 and node.inputs[1] is not None and b.constant(node.inputs[1], "axes").size:
        return b.emit(node, [b.outer(node.inputs[0]), _axes_input(b, node, 1)])
    shape = shape_of(node.inputs[0])
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        raise NotBatchable("Squeeze without axes of a shape that is not known")
    axes = [axis + 1 for axis, dim in enumerate(shape) if dim == 1]
    if not axes:
        # Empty axes would take out time as well, where there is one step.
        return [b.editor.op(std.Identity, b.outer(node.inputs[0]))]
    return b.emit(node, [b.outer(node.inputs[0]), b.editor.ints(*axes)])


def _unsqueeze(b: Batch, node: ir.Node) -> list[ir.Value]:
    return b.emit(node, [b.outer(node.inputs[0]), _axes_input(b, node, 1)])


def _reduce(b: Batch, node: ir.Node) -> list[ir.Value]:
    value = node.inputs[0]
    given = attribute(node, "axes", None)
    as_input = node.op_type == "ReduceSum" or b.editor.opset >= 18
    if given is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        given = b.constant(node.inputs[1], "axes").reshape(-1).tolist()
    if not given:
        if attribute(node, "noop_with_empty_axes", 0):
            # Elementwise: what is not summed is squared all the same.
            return b.emit(node, [b.outer(operand) for operand in node.inputs])
        given = list(range(b.rank(value)))
        if not given:
            return [b.editor.op(std.Identity, b.outer(value))] if node.op_type in _SELF_REDUCING else _no_axes(node)
    axes = [_shift(int(axis)) for axis in given]
    if as_input:
        return b.emit(node, [b.outer(value), b.editor.ints(*axes)], axes=None)
    return b.emit(node, [b.outer(value)], axes=axes)


_SELF_REDUCING = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


def _no_axes(node: ir.Node) -> list[ir.Value]:
    raise NotBatchable(f"{node.op_type} of a scalar")


def _expand(b: Batch, node: ir.Node) -> list[ir.Value]:
    b.require_shared(node, 1)
    value, target = node.inputs
    lengths = shape_of(target)
    if lengths is None or not isinstance(lengths[0], int):
        raise NotBatchable("the rank that Expand makes is not known")
    rank = max(b.rank(value), lengths[0])
    ones = b.editor.ints(*[1] * (1 + rank - lengths[0]))
    return b.emit(node, [b.aligned(value, rank), b.editor.op(std.Concat, ones, b.outer(target), axis=0)])


def _pad(b: Batch, node: ir.Node) -> list[ir.Value]:
    b.require_shared(node, 1, 2, 3)
    inputs = [b.outer(value) for value in node.inputs]
    if len(inputs) > 3 and inputs[3] is not None:
        inputs[3] = _axes_input(b, node, 3)
    else:
        pads = b.constant(node.inputs[1], "pads").tolist()
        half = len(pads) // 2
        inputs[1] = b.editor.ints(0, *pads[:half], 0, *pads[half:])
    return b.emit(node, inputs)


def _cumsum(b: Batch, node: ir.Node) -> list[ir.Value]:
    axis = int(b.constant(node.inputs[1], "axis").reshape(-1)[0])
    return b.emit(node, [b.outer(node.inputs[0]), b.editor.constant(_shift(axis))])


def _shape_op(b: Batch, node: ir.Node) -> list[ir.Value]:
    shape = b.editor.op(std.Shape, b.outer(node.inputs[0]))
    start, end = attribute(node, "start", 0), attribute(node, "end", None)
    if start < -b.rank(node.inputs[0]):
        start = 0
    return [b.editor.slice(shape, _shift(start), END if end is None else _shift(end), 0)]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mean", "Sum", "Mod", "Where"), _elementwise
    ),
    **dict.fromkeys(("And", "Or", "Xor", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"), _elementwise),
    **dict.fromkeys(
        (
            "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu", "Clip",
            "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
            "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round",
            "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan",
            "Tanh", "ThresholdedRelu",
        ),
        _unary,
    ),
    **dict.fromkeys(
        (
            "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
            "ReduceLogSumExp", "ReduceSumSquare",
        ),
        _reduce,
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LayerNormalization"), _axis_attribute(-1)),
    **dict.fromkeys(("ArgMax", "ArgMin", "Split"), _axis_attribute(0)),
    "PRelu": _prelu,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Concat": _concat,
    "Slice": _slice,
    "Gather": _gather,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Pad": _pad,
    "CumSum": _cumsum,
    "Shape": _shape_op,
}  # fmt: skip
