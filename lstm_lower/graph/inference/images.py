"""Types and shapes of operators that sample images, and of transforms."""

from __future__ import annotations

import math

import numpy as np

from lstm_lower.graph import standard as std
from lstm_lower.graph.inference.base import Inferred, infers
from lstm_lower.graph.values import Dim


@infers(std.DFT)
def _dft(op: std.DFT) -> Inferred:
    shape, axis = op.shape(), op.axis
    if shape is None or axis is None:
        return [(op.dtype(), None if shape is None else (None,) * len(shape))]
    given = None if op.length is None else op.facts.entries(op.length)
    size: Dim | None = shape[axis] if op.length is None else None if given is None else given[0]
    if op.onesided and op.inverse:
        size = (size - 1) * 2 if op.length is None and isinstance(size, int) else None if op.length is None else size
    elif op.onesided:
        size = size // 2 + 1 if isinstance(size, int) else None
    real = op.onesided and op.inverse
    return [(op.dtype(), (*shape[:axis], size, *shape[axis + 1 : -1], 1 if real else 2))]


@infers(std.Resize)
def _resize(op: std.Resize) -> Inferred:
    shape, axes, scales = op.shape(), op.axes, op.facts.constant(op.scales)
    if shape is None or axes is None:
        return [(op.dtype(), None if shape is None else (None,) * len(shape))]
    sizes: list[Dim | None] = list(shape)
    given = None if op.sizes is None or op.policy != "stretch" else op.facts.entries(op.sizes)
    # ONNX multiplies a cropped region, onnxruntime the whole.
    factors = None if op.coordinates == "tf_crop_and_resize" or scales is None else scales.tolist()
    for place, axis in enumerate(axes):
        if given is not None:
            sizes[axis] = given[place]
        else:
            sizes[axis] = None if factors is None or op.sizes is not None else _scaled(shape[axis], factors[place])
    return [(op.dtype(), tuple(sizes))]


def _scaled(size: Dim, factor: float) -> Dim | None:
    """A size times a factor; not known where that is another one in float32, as onnxruntime has it."""
    if factor == 1 or not isinstance(size, int):
        return size if factor == 1 else None
    exact = math.floor(size * factor)
    return exact if exact == math.floor(np.float32(size) * np.float32(factor)) else None
