"""Lowering of onnxruntime-training's accumulators and optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.ops import ort_updates as ops
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(ops.InPlaceAccumulator)
def in_place_accumulator(n: Node, b: Builder) -> Expr:
    """Without a signal the value is added."""
    total, signal = n.old_sum + n.operand("value"), n.get("update_signal", None)
    return total if signal is None else b.where(signal.reshape(), total, n.old_sum)


@lowers(ops.InPlaceAccumulatorV2)
def in_place_accumulator_v2(n: Node, b: Builder) -> list[Expr]:
    """Without a flag the value is added; what is overwritten may be anything."""
    value, flag = n.operand("value"), n.get("overwrite_flag", None)
    total = n.accumulation_buffer + value
    return [
        b.constant([True], ir.DataType.BOOL),
        total if flag is None else b.where(flag.reshape(), value, total),
    ]


# The oldest opset with a map over sequences.
_MAP_SINCE = 17


# From a weight, its gradient, further sequences' elements, then tensors that all share, to what they become.
Update = Callable[..., list[Expr]]


def _each(n: Node, b: Builder, sequences: Sequence[str], shared: Sequence[Expr], update: Update) -> list[Expr]:
    """Updates every weight; where a signal says no they stay what they are.

    Raises:
        UnsupportedOpError: the opset has no map over sequences.
    """
    signal = n.get("update_signal", None)
    operands = [n.moved(name) for name in sequences]
    if signal is None:
        return _mapped(n, b, operands, shared, update)

    def updated(*values: Expr) -> list[Expr]:
        elements = values[: len(sequences)]
        old = [elements[0], *elements[2:]]
        return [b.where(values[-1], *pair) for pair in zip(update(*values[:-1]), old, strict=True)]

    return _mapped(n, b, operands, [*shared, signal], updated)


def _mapped(n: Node, b: Builder, sequences: Sequence[Expr], shared: Sequence[Expr], formula: Update) -> list[Expr]:
    """Sequences of what a formula makes of elements in the same place and of numbers that all share.

    Raises:
        UnsupportedOpError: the opset has no map over sequences.
    """
    if b.opset < _MAP_SINCE:
        raise n.unsupported(
            "the model", f"opset {_MAP_SINCE} or newer, as lower(..., opset={_MAP_SINCE}) makes it", b.opset
        )
    scalars = [x.reshape() for x in shared]
    # A map's body knows nothing of what is around it, constants neither.
    graph = ir.Graph([], [], nodes=[], name=b.names.fresh(f"{b.scope}/update"))
    inner = Builder(b.space, graph, scope=str(graph.name))
    elements = [inner.wrap(_parameter(inner, f"element_{i}", ir.DataType.FLOAT, None)) for i in range(len(sequences))]
    numbers = [inner.wrap(_parameter(inner, "number", x.dtype, ())) for x in scalars]
    new = formula(*elements, *numbers)
    graph.inputs.extend([x.value for x in (*elements, *numbers)])
    graph.outputs.extend(inner.results(new))
    return b.ops(std.SequenceMap, *sequences, *scalars, outputs=len(new), body=graph)


def _parameter(inner: Builder, name: str, dtype: ir.DataType, shape: Sequence[int] | None) -> ir.Value:
    return inner.space.value(f"{inner.scope}/{name}", ir.TensorType(dtype), shape)


def _done(n: Node, b: Builder) -> Expr:
    """Whether weights were updated."""
    signal = n.get("update_signal", None)
    return b.constant([True], ir.DataType.BOOL) if signal is None else signal.reshape(1)


@lowers(ops.InplaceClipGradNorm)
def inplace_clip_grad_norm(n: Node, b: Builder) -> Expr:
    """Onnxruntime's kernel adds 1e-6 to the norm that it divides by."""
    gradients = n.moved("gradients")
    (squares,) = _mapped(n, b, [gradients], [], lambda g: [g.builder.op(std.ReduceSumSquare, g, keepdims=0)])
    norm = b.op(std.ReduceSum, b.op(std.ConcatFromSequence, squares, axis=0, new_axis=1), keepdims=0).sqrt()
    factor = (n.max_norm / (norm + 1e-6)).minimum(1.0)
    return _mapped(n, b, [gradients], [factor], lambda g, factor: [g * factor])[0]


@lowers(ops.SGDOptimizerV2)
def sgd_optimizer_v2(n: Node, b: Builder) -> list[Expr]:
    """The gradient times the rate less."""
    (weights,) = _each(n, b, ("weights", "gradients"), [n.learning_rate], lambda w, g, rate: [w - g * rate])
    return [_done(n, b), weights]


@lowers(ops.AdamWOptimizer)
def adam_w_optimizer(n: Node, b: Builder) -> list[Expr]:
    """PyTorch lets weights decay before the step, Hugging Face behind it and has epsilon in another place."""
    rate, step = n.learning_rate, n.step.cast(ir.DataType.DOUBLE)
    # What a mean of `step` numbers that began with 0 has of 1; digits of the difference are lost in float32.
    share = [(1 - base**step if n.correct_bias else step.like(1)).cast(rate.dtype) for base in (n.alpha, n.beta)]

    def update(*operands: Expr) -> list[Expr]:
        w, g, first, second, rate, share_1, share_2 = operands
        first, second = first * n.alpha + g * (1 - n.alpha), second * n.beta + g * g * (1 - n.beta)
        decay = rate * n.weight_decay
        if n.adam_mode:
            w = w - rate * share_2.sqrt() / share_1 * (first / (second.sqrt() + n.epsilon))
            return [w - w * decay, first, second]
        w = w - w * decay
        return [w - rate / share_1 * (first / ((second / share_2).sqrt() + n.epsilon)), first, second]

    sequences = ("weights", "gradients", "momentums_1", "momentums_2")
    updated = _each(n, b, sequences, [rate, *share], update)
    return [_done(n, b), *updated]
