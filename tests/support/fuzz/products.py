"""Ideas: products, recurrent networks and other operators with weights, sequences of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value


@idea(6)
def matmul(s: Scope) -> Value:
    left = s.floats(least_rank=1)
    columns = s.random.choice([left.shape[-1], s.random.randint(0, 4)])
    shape = [left.shape[-1], columns]
    match s.random.choice(["matrix", "matrix", "matrix", "vector", "batch", "ones"]):
        case "vector":
            shape = shape[:1]
        case "batch":
            shape = [*left.shape[:-2], *shape]
        case "ones":
            shape = [1, *shape]
    if not left.shape[-1]:
        raise Refused("onnxruntime leaves the result as it finds it where it fuses a Transpose or a factor into it")
    right = s.like(left.dtype, shape)
    if s.chance(0.2) and right.rank > 1 and left.rank > 1:
        flip = list(range(left.rank))
        flip[-2:] = flip[-1], flip[-2]
        other = list(range(right.rank))
        other[-2:] = other[-1], other[-2]
        return s.one("MatMul", s.one("Transpose", right, perm=other), s.one("Transpose", left, perm=flip))
    return s.one("MatMul", left, right)


@idea(3)
def gemm(s: Scope) -> Value:
    left = s.pick(lambda v: v.is_float and v.rank == 2)
    fields: dict[str, Any] = {}
    if s.chance(0.4):
        fields["transA"] = s.random.randint(0, 1)
    if s.chance(0.4):
        fields["transB"] = s.random.randint(0, 1)
    if s.chance(0.3):
        fields["alpha"] = s.random.choice([0.5, -1.0, 0.0])
    if s.chance(0.3):
        fields["beta"] = s.random.choice([0.5, -1.0, 0.0])
    rows, inner = left.shape[::-1] if fields.get("transA") else left.shape
    columns = s.random.choice([inner, s.random.randint(1, 4)])
    right = s.like(left.dtype, (columns, inner) if fields.get("transB") else (inner, columns))
    sums = s.random.choice([None, (columns,), (rows, columns), (1, columns), (rows, 1), (), (1,)])
    return s.one("Gemm", left, right, None if sums is None else s.like(left.dtype, sums), **fields)


@idea(1)
def einsum(s: Scope) -> Value:
    value = s.pick(lambda v: v.is_float and v.rank == 2)
    rows, columns = value.shape
    if not columns:
        raise Refused("onnxruntime would crash")
    forms = {
        "ij->ji": [],
        "ij->": [],
        "ij,jk->ik": [(columns, 2)],
        "ij,kj->ki": [(3, columns)],
        "ij,ij->i": [(rows, columns)],
        "bi, bj -> bij": [(rows, 2)],
    }
    equation = s.random.choice(list(forms))
    return s.one("Einsum", value, *(s.like(value.dtype, shape) for shape in forms[equation]), equation=equation)


@idea(2)
def recurrent(s: Scope) -> list[Value]:
    """LSTM, GRU or RNN with every combination of direction, layout and operands left out."""
    op = s.random.choice(["LSTM", "GRU", "RNN"])
    value = s.pick(lambda v: v.is_float and v.rank == 3)
    direction = s.random.choice(["forward", "reverse", "bidirectional"])
    ways, hidden = (2 if direction == "bidirectional" else 1), s.random.randint(1, 3)
    layout = s.random.randint(0, 1) if s.growth.opset >= 14 and s.chance(0.5) else 0
    steps, batch, size = value.shape if layout == 0 else (value.shape[1], value.shape[0], value.shape[2])
    if not value.sample.size:
        raise Refused("onnxruntime would crash")
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    dtype = value.dtype
    state = (ways, batch, hidden) if layout == 0 else (batch, ways, hidden)
    operands: list[Value | None] = [value]
    operands += [s.like(dtype, (ways, gates * hidden, size)), s.like(dtype, (ways, gates * hidden, hidden))]
    operands.append(s.like(dtype, (ways, 2 * gates * hidden)) if s.chance(0.5) else None)
    lengths = [s.random.randint(1, max(steps, 1)) for _ in range(batch)]
    operands.append(s.constant(lengths, np.int32) if s.chance(0.3) else None)
    operands.append(s.like(dtype, state) if s.chance(0.5) else None)
    if op == "LSTM":
        operands.append(s.like(dtype, state) if s.chance(0.5) else None)
        operands.append(s.like(dtype, (ways, 3 * hidden)) if s.chance(0.3) else None)
    fields: dict[str, Any] = {"hidden_size": hidden}
    if direction != "forward" or s.chance(0.5):
        fields["direction"] = direction
    if layout or (s.chance(0.2) and s.growth.opset >= 14):
        fields["layout"] = layout
    if op == "GRU" and s.chance(0.5):
        fields["linear_before_reset"] = 1
    names = [s.growth.fresh() if s.chance(0.7) else "" for _ in range(3 if op == "LSTM" else 2)]
    names[s.random.randrange(len(names))] = s.growth.fresh()
    return s.emit(op, operands, names, **fields)


@idea(0.7)
def normalised(s: Scope) -> Value:
    value = s.floats(least_rank=2)
    channels = value.shape[1]
    if s.chance(0.5) and s.growth.opset >= 17:
        axis = s.random.randrange(-value.rank, value.rank)
        tail = value.shape[axis:]
        return s.one("LayerNormalization", value, s.like(value.dtype, tail), s.like(value.dtype, tail), axis=axis)
    scale, bias, mean = (s.like(value.dtype, (channels,)) for _ in range(3))
    return s.one("BatchNormalization", value, scale, bias, mean, s.constant(np.ones(channels), value.dtype))


@idea(0.7)
def convolution(s: Scope) -> Value:
    value = s.pick(lambda v: v.is_float and v.rank in (3, 4))
    spatial = value.rank - 2
    if s.chance(0.4):
        op = s.random.choice(["MaxPool", "AveragePool"])
        return s.one(
            op, value, kernel_shape=[s.random.randint(1, 2)] * spatial, strides=[s.random.randint(1, 2)] * spatial
        )
    if not value.shape[1]:
        raise Refused("onnxruntime would not come to an end")
    kernel = [s.random.randint(1, 2)] * spatial
    weight = s.like(value.dtype, (2, value.shape[1], *kernel))
    bias = s.like(value.dtype, (2,)) if s.chance(0.5) else None
    return s.one("Conv", value, weight, bias, pads=[s.random.randint(0, 1)] * 2 * spatial)


@idea(1.5)
def sequences(s: Scope) -> Value:
    """A sequence of tensors, and what is read from it."""
    value = s.pick(lambda v: v.rank > 0)
    if s.chance(0.5):
        parts = [value, *(s.like(value.dtype, value.shape) for _ in range(s.random.randint(0, 2)))]
        made = s.one("SequenceConstruct", *parts)
    else:
        axis = s.random.randrange(value.rank)
        cut = [s.ints(1)] if s.chance(0.5) else []
        # Where the sizes are given ONNX keeps the axis, and onnxruntime does not.
        made = s.one("SplitToSequence", value, *cut, axis=axis, keepdims=1 if cut else s.random.randint(0, 1))
    count = len(made.sample)
    if s.chance(0.4):
        made = s.one("Identity", made)
    if s.chance(0.2):
        made = s.one(
            "SequenceInsert", made, value, *([s.ints(s.random.randint(-count, count))] if s.chance(0.5) else [])
        )
    if s.chance(0.1):
        made = s.one("SequenceErase", made, *([s.ints(s.random.randint(-count, count - 1))] if s.chance(0.5) else []))
    match s.random.choice(["at", "at", "concat", "length", "stay"]):
        case "at":
            return s.one("SequenceAt", made, s.ints(s.random.randint(-count, count - 1) if count else 0))
        case "concat":
            return s.one("ConcatFromSequence", made, axis=0, new_axis=s.random.randint(0, 1))
        case "length":
            return s.one("SequenceLength", made)
    return made
