"""Types and shapes of complex numbers and their parts."""

from __future__ import annotations

from lstm_lower.dtypes import PARTS
from lstm_lower.graph import standard as std
from lstm_lower.graph.inference.base import Inferred, infers

_COMPLEX = {part: whole for whole, part in PARTS.items()}


@infers(std.PartsOf)
def _parts_of(op: std.PartsOf) -> Inferred:
    dtype, shape = op.dtype(), op.shape()
    return [(None if dtype is None else PARTS[dtype], None if shape is None else (*shape, 2))]


@infers(std.OfParts)
def _of_parts(op: std.OfParts) -> Inferred:
    dtype, shape = op.dtype(), op.shape()
    return [(None if dtype is None else _COMPLEX[dtype], None if shape is None else shape[:-1])]
