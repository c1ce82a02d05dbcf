"""Ideas: gathers, scatters, shapes and what is made from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Scope, Value


def _indices(s: Scope, shape: Any, size: int) -> Value:
    """Indices into an axis, some of them counted from the end."""
    array = s.growth.numbers.integers(-size, size, shape) if size else np.zeros((0,), np.int64)
    dtype = s.random.choice(["int64", "int64", "int32"])
    return s.constant(array, dtype)


def _small_shape(s: Scope) -> list[int]:
    return [s.random.choice([0, 1, 2, 2, 3]) for _ in range(s.random.randint(0, 2))]


@idea(4)
def gather(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 0)
    axis = s.random.randrange(-value.rank, value.rank)
    size = value.shape[axis]
    fields = {} if axis == 0 and s.chance(0.5) else {"axis": axis}
    return s.one("Gather", value, _indices(s, _small_shape(s), size), **fields)


@idea(1)
def gather_elements(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 0 and v.sample.size > 0)
    axis = s.random.randrange(-value.rank, value.rank)
    shape = list(value.shape)
    shape[axis] = s.random.randint(1, 3)
    return s.one("GatherElements", value, _indices(s, shape, value.shape[axis]), axis=axis)


@idea(1)
def gather_nd(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 0 and v.sample.size > 0)
    batch = s.random.randint(0, value.rank - 1) if s.chance(0.3) else 0
    depth = s.random.randint(1, value.rank - batch)
    lead = [*value.shape[:batch], *_small_shape(s)]
    parts = [s.growth.numbers.integers(-size, size, lead) for size in value.shape[batch : batch + depth]]
    return s.one("GatherND", value, s.constant(np.stack(parts, -1), np.int64), batch_dims=batch)


@idea(1)
def scatter_elements(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 0 and v.sample.size > 0 and v.dtype.kind in "fi")
    axis = s.random.randrange(-value.rank, value.rank)
    shape = list(value.shape)
    shape[axis] = s.random.randint(1, value.shape[axis])
    order = np.argsort(s.growth.numbers.random(value.shape), axis=axis)  # distinct along the axis
    indices = np.take(order, range(shape[axis]), axis=axis)
    reduction = _reduction(s)
    if reduction.get("reduction", "none") != "none" and s.chance(0.5):
        indices = s.growth.numbers.integers(-value.shape[axis], value.shape[axis], shape)
    return s.one(
        "ScatterElements",
        value,
        s.constant(indices, np.int64),
        s.like(value.dtype, shape),
        axis=axis,
        **reduction,
    )


@idea(1)
def scatter_nd(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 0 and v.sample.size > 0 and v.dtype.kind in "fi")
    count = s.random.randint(0, value.shape[0])
    rows = s.growth.numbers.permutation(value.shape[0])[:count, None]
    reduction = _reduction(s)
    if reduction.get("reduction", "none") != "none" and s.chance(0.5):
        rows = s.growth.numbers.integers(-value.shape[0], value.shape[0], (count, 1))
    updates = s.like(value.dtype, (count, *value.shape[1:]))
    return s.one("ScatterND", value, s.constant(rows, np.int64), updates, **reduction)


def _reduction(s: Scope) -> dict[str, Any]:
    kinds = ["none", "add", "mul"] + ["max", "min"] * (s.growth.opset >= 18)
    return {"reduction": s.random.choice(kinds)} if s.growth.opset >= 16 and s.chance(0.4) else {}


@idea(1)
def one_hot(s: Scope) -> Value:
    values = s.constant(s.growth.array([2], s.growth.dtype, "random"))
    depth = s.random.choice([1, 2, 3])
    rank = s.random.randint(0, 2)
    indices = s.constant(s.growth.numbers.integers(-depth, depth + 1, [2] * rank), np.int64)
    axis = s.random.randint(-rank - 1, rank)
    return s.one("OneHot", indices, s.constant(s.random.choice([depth, [depth]]), np.int64), values, axis=axis)


@idea(3)
def shape(s: Scope) -> Value:
    value = s.pick()
    if s.chance(0.2):
        return s.one("Size", value)
    fields: dict[str, Any] = {}
    if s.growth.opset >= 15 and s.chance(0.5):
        fields["start"] = s.random.randint(-value.rank - 1, value.rank + 1)
        if s.chance(0.6):
            fields["end"] = s.random.randint(-value.rank - 1, value.rank + 1)
    return s.one("Shape", value, **fields)


@idea(2)
def constant_of_shape(s: Scope) -> Value:
    target = s.ints(_small_shape(s), least=0.8)
    kinds = [s.growth.dtype] * 3 + [np.dtype("int64"), np.dtype(bool)]
    value = s.growth.array([1], s.random.choice(kinds))
    fields = {} if s.chance(0.2) else {"value": numpy_helper.from_array(value)}
    return s.one("ConstantOfShape", target, **fields)


@idea(2)
def ranges(s: Scope) -> Value:
    if s.chance(0.3):
        bounds = [s.constant(bound, s.growth.dtype) for bound in s.random.choice([(0, 3, 1), (1, -1, -0.5), (2, 0, 1)])]
        return s.one("Range", *bounds)
    step = s.random.choice([1, 1, 1, 2, -1])
    start = s.random.randint(-1, 3)
    return s.one("Range", s.ints(start), s.ints(start + step * s.random.randint(0, 3)), s.ints(step))


@idea(1)
def counted(s: Scope) -> Value:
    """Results whose size depends on values."""
    value = s.pick(lambda v: v.dtype.kind in "fib" and v.rank > 0)
    match s.random.choice(["NonZero", "Compress", "Unique"]):
        case "Compress":
            axis = s.random.randrange(-value.rank, value.rank)
            condition = s.constant(s.growth.numbers.integers(0, 2, value.shape[axis]), bool)
            if s.chance(0.3):
                return s.one("Compress", value, condition)
            return s.one("Compress", value, condition, axis=axis)
        case "Unique":
            return s.emit("Unique", [value], s.random.randint(1, 4), sorted=1)[0]
        case _:
            return s.one("NonZero", value)


@idea(0.5)
def eye_like(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank == 2)
    return s.one("EyeLike", value, **({"k": s.random.randint(-1, 1)} if s.chance(0.5) else {}))
