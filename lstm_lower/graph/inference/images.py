"""Types and shapes of operators that sample images, and of transforms."""

from __future__ import annotations

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
