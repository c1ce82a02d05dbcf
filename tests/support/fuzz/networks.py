"""Ideas: layers as exporters write them: dense ones, attention, normalizations, convolutions, losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value


def _filled(v: Value) -> bool:
    return v.is_float and v.sample.size > 0


@idea(2)
def dense(s: Scope) -> Value:
    """A product with a weight, a bias and an activation, perhaps added to what came in."""
    value = s.pick(lambda v: _filled(v) and v.rank > 1)
    size = value.shape[-1]
    width = size if s.chance(0.5) else s.random.randint(1, 4)
    made = s.one("MatMul", value, s.like(value.dtype, (size, width)))
    if s.chance(0.8):
        made = s.one("Add", *s.random.sample([made, s.like(value.dtype, (width,))], 2))
    match s.random.choice(["Relu", "Tanh", "Gelu by hand", "gate", "none"]):
        case "Gelu by hand":
            half = s.one("Mul", made, s.constant(0.5, value.dtype))
            erf = s.one("Erf", s.one("Div", made, s.constant(1.5, value.dtype)))
            made = s.one("Mul", half, s.one("Add", erf, s.constant(1, value.dtype)))
        case "gate":
            made = s.one("Mul", made, s.one("Sigmoid", made))
        case "none":
            pass
        case op:
            made = s.one(op, made)
    return s.one("Add", value, made) if width == size and s.chance(0.5) else made


@idea(1.5)
def layer_normalization_by_hand(s: Scope) -> Value:
    """Mean and variance along the last axes, as exporters of older opsets write them."""
    value = s.pick(lambda v: _filled(v) and v.rank > 1)
    axes = s.random.choice([[-1], [value.rank - 1], [-2, -1]])

    def mean(x: Value) -> Value:
        if s.growth.opset >= 18:
            return s.one("ReduceMean", x, s.constant(axes, np.int64), keepdims=1)
        return s.one("ReduceMean", x, axes=axes, keepdims=1)

    centred = s.one("Sub", value, mean(value))
    squared = s.one("Pow", centred, s.constant(2, value.dtype)) if s.chance(0.5) else s.one("Mul", centred, centred)
    spread = s.one("Sqrt", s.one("Add", mean(squared), s.constant(0.25, value.dtype)))
    made = s.one("Div", centred, spread)
    if s.chance(0.5):
        made = s.one("Mul", made, s.like(value.dtype, value.shape[-1:]))
    return s.one("Add", made, s.like(value.dtype, value.shape[-1:])) if s.chance(0.5) else made


@idea(1.5)
def attention_by_hand(s: Scope) -> Value:
    """softmax(Q K^T / c) V of a sequence with itself, in heads or not, masked or not."""
    value = s.pick(lambda v: _filled(v) and v.rank == 3)
    batch, steps, size = value.shape
    heads = s.random.choice([h for h in (1, 2, 3) if size % h == 0])
    parts = []
    for _ in range(3):
        part = s.one("MatMul", value, s.like(value.dtype, (size, size))) if s.chance(0.7) else value
        target = [batch, steps, heads, size // heads]
        if s.chance(0.3):
            target[s.random.choice([0, 1])] = -1
        elif s.chance(0.3):
            target[:2] = 0, 0
        split = s.one("Reshape", part, s.ints(target))
        parts.append(s.one("Transpose", split, perm=[0, 2, 1, 3]))
    q, k, v = parts
    scores = s.one("MatMul", q, s.one("Transpose", k, perm=[0, 1, 3, 2]))
    scores = s.one("Div", scores, s.constant(s.random.choice([1, 2]), value.dtype))
    if s.chance(0.4):
        lower = s.growth.numbers.integers(0, 2, (steps, steps)) + np.eye(steps, dtype=np.int64)
        scores = s.one("Where", s.constant(lower > 0), scores, s.constant(-50, value.dtype))
    mixed = s.one("MatMul", s.one("Softmax", scores, axis=s.random.choice([-1, 3])), v)
    joined = s.one("Transpose", mixed, perm=[0, 2, 1, 3])
    return s.one("Reshape", joined, s.ints([batch, steps, size] if s.chance(0.5) else [0, -1, size]))


@idea(1)
def attention(s: Scope) -> list[Value]:
    """The operator, with fewer heads of keys than of queries, masks, caps and causal."""
    if s.growth.opset < 23 or s.growth.dtype == np.float16:
        raise Refused("opset")
    batch, keys, size = s.random.randint(1, 2), s.random.randint(1, 2), s.random.choice([2, 4])
    heads, steps, past = keys * s.random.randint(1, 2), s.random.randint(1, 3), s.random.randint(1, 3)
    dtype = s.growth.dtype
    q, k, v = (s.like(dtype, (batch, n, t, size)) for n, t in ((heads, steps), (keys, past), (keys, past)))
    fields: dict[str, Any] = {}
    if s.chance(0.4):
        fields["is_causal"] = 1
    if s.chance(0.3):
        fields["scale"] = 0.5
    if s.chance(0.3):
        fields["softcap"] = 2.0
    mask = s.like(dtype, (steps, past)) if s.chance(0.4) else None
    return s.emit("Attention", [q, k, v, mask], 1, **fields)


@idea(1)
def embedding(s: Scope) -> Value:
    """Rows of a table, by indices that are computed, and perhaps their sum."""
    table = s.pick(lambda v: _filled(v) and v.rank == 2)
    value = s.pick(lambda v: v.dtype.kind in "fi" and 0 < v.rank < 3)
    whole = s.one("Cast", s.one("Abs", value), to=7)
    places = s.one("Mod", whole, s.constant(table.shape[0], np.int64))
    rows = s.one("Gather", table, places, axis=0)
    return s.one("ReduceSum", rows, s.constant([-2], np.int64), keepdims=0) if s.chance(0.3) else rows


@idea(1)
def batch_statistics(s: Scope) -> list[Value]:
    """A BatchNormalization in training, whose statistics move."""
    if s.growth.opset < 14:
        raise Refused("opset")
    value = s.pick(lambda v: _filled(v) and v.rank in (2, 3, 4))
    channels = value.shape[1]
    scale, bias = (s.like(value.dtype, (channels,)) for _ in range(2))
    # onnxruntime writes the new statistics over the old ones, whoever else reads them.
    mean, spread = (s.one("Add", s.like(value.dtype, (channels,)), s.constant(4, value.dtype)) for _ in range(2))
    fields = {"momentum": 0.75} if s.chance(0.5) else {}
    given = [value, scale, bias, mean, spread]
    made = s.emit("BatchNormalization", given, 3, training_mode=1, epsilon=0.125, **fields)
    s.drop(mean)
    s.drop(spread)
    return made


@idea(1)
def images(s: Scope) -> Value:
    """A convolution, a normalization, an activation and a pooling behind each other."""
    value = s.pick(lambda v: _filled(v) and v.rank == 4)
    channels = s.random.randint(1, 3)
    weight = s.like(value.dtype, (channels, value.shape[1], *(s.random.randint(1, 2) for _ in range(2))))
    made = s.one("Conv", value, weight, None, pads=[1, 1, 1, 1])
    if s.chance(0.6):
        ones = s.constant(np.ones(channels), value.dtype)
        made = s.one("BatchNormalization", made, ones, *(s.like(value.dtype, (channels,)) for _ in range(2)), ones)
    made = s.one("Relu", made) if s.chance(0.6) else made
    if s.chance(0.5):
        pool = s.random.choice(["MaxPool", "AveragePool"])
        return s.one(pool, made, kernel_shape=[2, 2], strides=[s.random.randint(1, 2)] * 2)
    return s.one("Flatten", s.one("GlobalAveragePool", made)) if s.chance(0.5) else made


@idea(1)
def losses(s: Scope) -> list[Value]:
    """A loss of labels, weighted or not, some of them ignored; reduced in each way."""
    scores = s.pick(lambda v: _filled(v) and v.rank in (2, 3))
    classes = scores.shape[1]
    shape = (scores.shape[0], *scores.shape[2:])
    labels = s.constant(s.growth.numbers.integers(0, classes, shape), s.random.choice(["int64", "int32"]))
    fields: dict[str, Any] = {"reduction": s.random.choice(["mean", "sum", "none"])}
    if s.chance(0.3):
        fields["ignore_index"] = s.random.randint(0, classes - 1)
    weight = s.constant(np.arange(1, classes + 1) / 2, scores.dtype) if s.chance(0.4) else None
    if s.chance(0.5):
        return s.emit("SoftmaxCrossEntropyLoss", [scores, labels, weight], s.random.randint(1, 2), **fields)
    logs = s.one("LogSoftmax", scores, axis=1)
    return s.emit("NegativeLogLikelihoodLoss", [logs, labels, weight], 1, **fields)
