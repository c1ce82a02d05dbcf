"""What a value says of itself, without looking at what makes it: dimensions, constants, attributes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import Identity

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Open(Identity):
    """A dimension of unknown size: axis `axis` of `value`. The same object stands wherever the size is the same."""

    value: ir.Value
    axis: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Entry(Identity):
    """An unknown entry of an integer vector: number `index` of `value`. It need not be a size: it may be negative."""

    value: ir.Value
    index: int


# A size, the name of one, or one that is known by its identity alone.
Dim = int | str | Identity
Shape = tuple[Dim, ...]
# A shape of which some dimensions are not known at all.
Partial = tuple["Dim | None", ...]


def declared_shape(value: ir.Value | None) -> tuple[int | str | None, ...] | None:
    """A value's dimensions as its model states them; `None` when not even the rank is stated.

    A negative size, with which some exporters mean an open one, is one that is not stated.
    """
    if value is None or value.shape is None:
        return None
    return tuple([_stated_dim(dim) for dim in value.shape.dims])


def _stated_dim(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim.value if not isinstance(dim, int) else dim if dim >= 0 else None


def stated(shape: Iterable[Dim | None]) -> ir.Shape:
    """A shape as a model can state it: identities of open dimensions are left out."""
    return ir.Shape([dim if isinstance(dim, int | str) else None for dim in shape])


def broadcast(*shapes: Partial | None) -> Partial | None:
    """The shape of an elementwise result; `None` when a rank is unknown."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) != len(shapes) or not known:
        return None
    if all(shape == known[0] for shape in known):
        return known[0]
    rank = max(len(shape) for shape in known)
    return tuple([_broadcast_dim([s[axis] for s in known if -axis <= len(s)]) for axis in range(-rank, 0)])


def _broadcast_dim(dims: list[Dim | None]) -> Dim | None:
    large = [dim for dim in dims if dim != 1]
    sizes = [dim for dim in large if isinstance(dim, int)]
    if sizes:
        return sizes[0]
    if not large:
        return 1
    # Of two open sizes either may be 1.
    return large[0] if all(dim == large[0] for dim in large) else None


def product(dims: Partial) -> Dim | None:
    """The number of elements; a lone open dimension stands for itself."""
    rest = [dim for dim in dims if dim != 1]
    if all(isinstance(dim, int) for dim in rest):
        total = 1
        for dim in rest:
            assert isinstance(dim, int)
            total *= dim
        return total
    return rest[0] if len(rest) == 1 else 0 if 0 in rest else None
