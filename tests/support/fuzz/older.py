"""Ideas: forms of operators that ended before opset 13; what reads sizes and axes from attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.fuzz.arithmetic import signed_axes
from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value

OLDEST, LAST = 9, 12


@idea(8, until=LAST)
def axes_as_attributes(s: Scope) -> Value | list[Value]:
    """Squeeze, Unsqueeze, ReduceSum and Split, whose axes and sizes are operands since 13."""
    if s.growth.opset > LAST:
        raise Refused("opset")
    value = s.floats(least_rank=1)
    signed = s.growth.opset >= 11
    match s.random.choice(["squeeze", "unsqueeze", "sum", "split"]):
        case "squeeze":
            value = s.pick(lambda v: 1 in v.shape)
            axis = s.random.choice([axis for axis, size in enumerate(value.shape) if size == 1])
            return s.one("Squeeze", value, axes=[axis - value.rank if signed and s.chance(0.3) else axis])
        case "unsqueeze":
            return s.one("Unsqueeze", value, axes=s.random.choice([[0], [value.rank], [0, 1], [-1] if signed else [1]]))
        case "sum":
            axes = [axis if signed else axis % value.rank for axis in signed_axes(s, value.rank, least=1)]
            fields: dict[str, Any] = {"axes": axes} if s.chance(0.8) else {}
            return s.one("ReduceSum", value, **fields, keepdims=s.random.randint(0, 1))
    size, count = value.shape[0], s.random.randint(1, 3)
    cuts = sorted(s.random.randint(0, size) for _ in range(count - 1))
    return s.emit("Split", [value], count, axis=0, split=np.diff([0, *cuts, size]).tolist())


@idea(4, until=LAST)
def over_flattened_axes(s: Scope) -> Value:
    """Softmax of all axes from one on, as before 13."""
    if s.growth.opset > LAST:
        raise Refused("opset")
    value = s.pick(lambda v: v.is_float and v.rank > 0 and v.sample.size > 0)
    fields = {"axis": s.random.randrange(value.rank)} if s.chance(0.7) and value.rank > 1 else {}
    return s.one(s.random.choice(["Softmax", "LogSoftmax", "Hardmax"]), value, **fields)


@idea(4, until=11)
def numbers_as_attributes(s: Scope) -> Value | list[Value]:
    """Pad, Clip, Slice, TopK and Dropout with attributes; Upsample."""
    value = s.pick(lambda v: v.dtype == np.float32 and v.rank > 0 and v.sample.size > 0)
    match s.random.choice(["pad", "clip", "slice", "top", "dropout", "upsample"]):
        case "pad" if s.growth.opset < 11:
            pads = [s.random.randint(0, 2) for _ in range(2 * value.rank)]
            return s.one("Pad", value, pads=pads, **({"value": 0.5} if s.chance(0.5) else {}))
        case "clip" if s.growth.opset < 11:
            return s.one(
                "Clip", value, **({"min": -1.0} if s.chance(0.7) else {}), **({"max": 1.0} if s.chance(0.7) else {})
            )
        case "slice" if s.growth.opset < 10:
            axis = s.random.randrange(value.rank)
            return s.one(
                "Slice", value, axes=[axis], starts=[s.random.randint(-2, 1)], ends=[s.random.choice([2, 9, -1])]
            )
        case "top" if s.growth.opset < 10:
            axis = s.random.randrange(value.rank)
            return s.emit("TopK", [value], 2, axis=axis, k=s.random.randint(1, value.shape[axis]))
        case "dropout":
            return s.one("Dropout", value, **({"ratio": 0.25} if s.chance(0.5) else {}))  # masks mean nothing there
        case "upsample" if s.growth.opset < 10 and value.rank == 4:
            return s.one("Upsample", value, s.constant([1, 1, 2, 2], np.float32), mode="nearest")
    raise Refused("opset")
