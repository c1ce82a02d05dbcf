"""Ideas: operators that rearrange elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.fuzz.arithmetic import signed_axes
from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value

FAR = np.iinfo(np.int64).max


@idea(3)
def transpose(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 1)
    if s.chance(0.3):
        return s.one("Transpose", value)
    return s.one("Transpose", value, perm=s.random.sample(range(value.rank), value.rank))


@idea(3)
def reshape(s: Scope) -> Value:
    value = s.pick()
    size = int(np.prod(value.shape))
    sizes = _factors(s, size)
    fields: dict[str, Any] = {}
    if s.chance(0.3) and sizes:
        sizes[s.random.randrange(len(sizes))] = -1
    elif s.chance(0.3):
        sizes = [0 if axis < value.rank and value.shape[axis] == entry else entry for axis, entry in enumerate(sizes)]
    elif s.chance(0.2) and s.growth.opset >= 14:
        fields["allowzero"] = s.random.randint(0, 1)
    return s.one("Reshape", value, s.ints(sizes), **fields)


def _factors(s: Scope, size: int) -> list[int]:
    """Sizes that multiply to a size."""
    sizes = []
    while size > 1:
        divisor = s.random.choice([d for d in range(1, size + 1) if size % d == 0])
        sizes.append(divisor)
        size //= divisor
    sizes += [1] * s.random.choice([0, 0, 1])
    if size == 0:
        sizes = [s.random.randint(0, 3), s.random.randint(0, 3)]
        sizes[s.random.randrange(2)] = 0
    return sizes


@idea(1)
def flatten(s: Scope) -> Value:
    value = s.pick()
    return s.one("Flatten", value, **({} if s.chance(0.3) else {"axis": s.random.randint(-value.rank, value.rank)}))


@idea(2)
def squeeze(s: Scope) -> Value:
    value = s.pick(lambda v: 1 in v.shape)
    ones = [axis for axis, size in enumerate(value.shape) if size == 1]
    if s.chance(0.2):
        return s.one("Squeeze", value)
    axes = s.random.sample(ones, s.random.randint(1, len(ones)))
    return s.one("Squeeze", value, s.ints([axis - value.rank if s.chance(0.3) else axis for axis in axes]))


@idea(3)
def unsqueeze(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank < 4)
    count = s.random.randint(1, 2)
    rank = value.rank + count
    axes = [axis - rank if s.chance(0.3) else axis for axis in s.random.sample(range(rank), count)]
    return s.one("Unsqueeze", value, s.ints(axes))


@idea(2)
def expand(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank < 4)
    target = [s.random.randint(0, 3) if size == 1 and s.chance(0.6) else size for size in value.shape]
    target = [1 if s.chance(0.15) else size for size in target]
    if s.chance(0.3):
        target = [s.random.randint(1, 3), *target]
    elif s.chance(0.2):
        target = target[1:]
    return s.one("Expand", value, s.ints(target))


@idea(4)
def slices(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 0)
    axes = signed_axes(s, value.rank, least=1)
    starts, ends, steps = [], [], []
    for axis in axes:
        size = value.shape[axis]
        step = s.random.choice([1, 1, 1, 1, 2, -1, -1, -2])
        anywhere = [*range(-size - 2, size + 3), FAR, -FAR]
        starts.append(s.random.choice(anywhere))
        ends.append(s.random.choice(anywhere))
        if s.chance(0.4):
            starts[-1], ends[-1] = (0, FAR) if step > 0 else (-1, -FAR)
        if step < 0 and ends[-1] == FAR:
            ends[-1] = size  # onnxruntime's inference and its kernel read that end in two ways
        steps.append(step)
    operands: list[Value | None] = [value, s.ints(starts), s.ints(ends)]
    plain = all(step == 1 for step in steps)
    if sorted(axis % value.rank for axis in axes) == list(range(len(axes))) and s.chance(0.3):
        order = sorted(range(len(axes)), key=lambda i: axes[i] % value.rank)
        operands = [value, s.constant(np.take(starts, order)), s.constant(np.take(ends, order))]
        tail = None if plain else s.constant(np.take(steps, order))
        return s.one("Slice", *operands, None, tail)
    dtype = "int64"
    if plain and s.chance(0.5):
        return s.one("Slice", *operands, s.constant(axes, dtype))
    return s.one("Slice", *operands, s.constant(axes, dtype), s.constant(steps, dtype))


@idea(2)
def pad(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 0)
    mode = s.random.choice(["constant", "constant", "edge", "reflect", "wrap"])
    axes = signed_axes(s, value.rank) if s.growth.opset >= 18 and s.chance(0.6) else list(range(value.rank))
    least = -1 if s.chance(0.2) else 0
    pads = [s.random.randint(least, 2) for _ in range(2 * len(axes))]
    fill = s.constant(s.growth.array([], value.dtype)) if mode == "constant" and s.chance(0.5) else None
    fields = {} if mode == "constant" and s.chance(0.5) else {"mode": mode}
    where = s.constant(axes, s.random.choice(["int64", "int32"])) if axes != list(range(value.rank)) else None
    return s.one("Pad", value, s.ints(pads), fill, where, **fields)


@idea(4)
def concat(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 0)
    axis = s.random.randrange(-value.rank, value.rank)
    parts = [value]
    for _ in range(s.random.randint(0, 2)):
        shape = list(value.shape)
        if s.chance(0.4):
            shape[axis] = s.random.randint(0, 3)
        parts.append(s.like(value.dtype, shape))
    s.random.shuffle(parts)
    return s.one("Concat", *parts, axis=axis)


@idea(4)
def split(s: Scope) -> list[Value]:
    value = s.pick(lambda v: v.rank > 0)
    axis = s.random.randrange(-value.rank, value.rank)
    size = value.shape[axis]
    count = s.random.randint(1, 4)
    fields: dict[str, Any] = {} if axis == 0 and s.chance(0.5) else {"axis": axis}
    if s.chance(0.5):
        if s.growth.opset >= 18:
            fields["num_outputs"] = count
        return s.emit("Split", [value], count, **fields)
    cuts = sorted(s.random.randint(0, size) for _ in range(count - 1))
    sizes = np.diff([0, *cuts, size]).tolist()
    return s.emit("Split", [value, s.ints(sizes)], count, **fields)


@idea(2)
def tile(s: Scope) -> Value:
    value = s.pick(lambda v: 0 < v.rank < 4)
    return s.one("Tile", value, s.ints([s.random.choice([0, 1, 1, 2, 2, 3]) for _ in range(value.rank)]))


@idea(2)
def identity(s: Scope) -> Value:
    return s.one("Identity", s.pick())


@idea(1)
def reverse_sequence(s: Scope) -> Value:
    value = s.pick(lambda v: v.rank > 1)
    time = s.random.randint(0, 1)
    lengths = [s.random.randint(0, value.shape[time]) for _ in range(value.shape[1 - time])]
    return s.one("ReverseSequence", value, s.constant(lengths, np.int64), time_axis=time, batch_axis=1 - time)


@idea(1)
def trilu(s: Scope) -> Value:
    if s.growth.opset < 14:
        raise Refused("opset")
    diagonal = s.constant(s.random.randint(-2, 2), np.int64) if s.chance(0.5) else None
    return s.one("Trilu", s.pick(lambda v: v.rank > 1), diagonal, upper=s.random.randint(0, 1))


@idea(0.5)
def blocks(s: Scope) -> Value:
    value = s.floats(least_rank=4)
    op = s.random.choice(["DepthToSpace", "SpaceToDepth"])
    fields = {"mode": s.random.choice(["DCR", "CRD"])} if op == "DepthToSpace" else {}
    return s.one(op, value, blocksize=s.random.choice([1, 2]), **fields)
