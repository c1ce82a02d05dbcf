"""Ideas: operators that few models have, each in some of its forms."""

from __future__ import annotations

import numpy as np

from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value


def _full(s: Scope, rank: int) -> Value:
    return s.pick(lambda v: v.is_float and v.rank == rank and v.sample.size > 0)


@idea(1)
def of_images(s: Scope) -> Value | list[Value]:
    """Regions of an image, its crops, and what an unpooling puts back."""
    match s.random.choice(["crop", "crop", "regions", "unpooled", "grid"]):
        case "crop" if s.growth.opset >= 18:
            value = s.pick(lambda v: v.rank > 0 and v.is_float)
            axes = s.random.sample(range(value.rank), s.random.randint(1, value.rank))
            target = s.ints([s.random.randint(1, 4) for _ in axes])
            return s.one("CenterCropPad", value, target, axes=[a - value.rank if s.chance(0.3) else a for a in axes])
        case "regions":
            value = _full(s, 4)
            corners = s.growth.numbers.integers(0, 5, (2, 4)) / 2
            boxes = s.constant(np.sort(corners.reshape(2, 2, 2), axis=1).reshape(2, 4), value.dtype)
            of = s.constant(s.growth.numbers.integers(0, value.shape[0], 2), np.int64)
            fields = {"output_height": 2, "output_width": 1, "mode": s.random.choice(["avg", "max"])}
            return s.one("RoiAlign", value, boxes, of, sampling_ratio=2, **fields)
        case "unpooled":
            value = _full(s, 4)
            made, places = s.emit("MaxPool", [value], 2, kernel_shape=[1, 1])
            return s.one("MaxUnpool", made, places, kernel_shape=[1, 1])
        case "grid" if s.growth.opset >= 20:
            theta = s.like(s.growth.dtype, (1, 2, 3))
            return s.one("AffineGrid", theta, s.constant([1, 1, 2, 3], np.int64), align_corners=s.random.randint(0, 1))
    raise Refused("opset")


@idea(1)
def of_sequences(s: Scope) -> Value:
    """Rotated positions, a cache that is written at a place, and windows of a signal."""
    match s.random.choice(["rotated", "written", "window"]):
        case "rotated" if s.growth.opset >= 23 and s.growth.dtype != np.float64:
            value = s.like(s.growth.dtype, (1, 2, s.random.randint(1, 3), 4))
            caches = [s.like(value.dtype, (1, value.shape[2], 2)) for _ in range(2)]
            return s.one("RotaryEmbedding", value, *caches, interleaved=s.random.randint(0, 1))
        case "written" if s.growth.opset >= 24:
            past, new = s.like(s.growth.dtype, (2, 1, 4, 2)), s.like(s.growth.dtype, (2, 1, 2, 2))
            at = s.constant(s.growth.numbers.integers(0, 3, 2), np.int64)
            return s.one("TensorScatter", past, new, at, mode=s.random.choice(["linear", "circular"]))
        case "window" if s.growth.opset >= 17:
            op = s.random.choice(["HannWindow", "HammingWindow", "BlackmanWindow"])
            return s.one(op, s.constant(s.random.randint(2, 5), np.int64), periodic=s.random.randint(0, 1))
    raise Refused("opset")


@idea(1)
def of_matrices(s: Scope) -> Value:
    """A determinant, a discrete Fourier transform."""
    if s.chance(0.4):
        value = s.pick(lambda v: v.dtype == np.float32 and v.rank > 1 and v.sample.size > 0)
        size = min(value.shape[-2:])
        ends = s.constant([size, size], np.int64)
        square = s.one("Slice", value, s.constant([0, 0], np.int64), ends, s.constant([-2, -1], np.int64))
        return s.one("Det", square)
    if s.growth.opset < 17:
        raise Refused("opset")
    value = s.one(
        "Unsqueeze", s.pick(lambda v: v.dtype == np.float32 and v.rank == 2 and v.sample.size > 0), s.ints([-1])
    )
    fields = {"onesided": 1} if s.chance(0.4) else {}
    if s.growth.opset < 20:
        return s.one("DFT", value, axis=1, **fields)
    return s.one("DFT", value, None, s.constant(1, np.int64), **fields)


@idea(0.5)
def chosen_boxes(s: Scope) -> Value:
    """Boxes that do not overlap much; how many are left shows at run time."""
    corners = s.growth.numbers.integers(0, 6, (1, 3, 4)).astype(np.float32)
    scores = s.growth.array((1, 2, 3), np.float32, "random")
    bounds = [s.constant([2], np.int64), s.constant([0.5], np.float32), s.constant([0.0], np.float32)]
    return s.one("NonMaxSuppression", s.constant(corners), s.constant(scores), *bounds[: s.random.randint(1, 3)])
