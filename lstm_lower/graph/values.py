"""Facts about a value by itself, without looking at the node that makes it: dimensions, constants."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import SizeIdentity, is_name
from lstm_lower.dtypes import is_floating, is_integer

# Longer vectors are data, not sizes.
MOST_ENTRIES = 64

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Open(SizeIdentity):
    """A dimension of unknown size: axis `axis` of `value`. An equal object stands wherever the size is the same."""

    value: ir.Value
    axis: int


@dataclasses.dataclass(frozen=True, slots=True)
class UnknownEntry(SizeIdentity):
    """An unknown entry of an integer vector: number `index` of `value`. It need not be a size: it may be negative."""

    value: ir.Value
    index: int


# A size, the name of one, or one that is known by its identity alone.
Dim = int | str | SizeIdentity
Shape = tuple[Dim, ...]
# A shape of which some dimensions are not known at all.
Partial = tuple["Dim | None", ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Alternatives:
    """The shapes, of several ranks, of which a value has one; which, only a run tells."""

    shapes: tuple[Partial, ...]

    def chosen(self, declared: Partial | None, rank: int | None = None) -> Partial | None:
        """The common part of the shapes that fit a declaration; `None` where it fits none of them.

        A declaration that leaves open what is known was not inferred from the operands: it decides nothing.

        Args:
            declared: what the model states.
            rank: the rank, where it is known otherwise.
        """
        possible = [shape for shape in self.shapes if rank in (None, len(shape))]
        fitting = [shape for shape in possible if declared is not None and _is_told_by(shape, declared)]
        if not fitting and len({len(shape) for shape in possible}) == 1:
            fitting = possible
        return (
            tuple([dims[0] if dims.count(dims[0]) == len(dims) else None for dims in zip(*fitting, strict=True)])
            if fitting
            else None
        )


def _is_told_by(shape: Partial, declared: Partial) -> bool:
    pairs = zip(shape, declared, strict=False)
    return len(shape) == len(declared) and all(own == stated for own, stated in pairs if isinstance(own, int))


_STATED = (int, str)
_CERTAIN = frozenset(_STATED)
_CERTAINTY: dict[type, int] = {int: 0, str: 1, type(None): 3}


def open_entries(value: ir.Value, shape: Shape | None) -> Array | None:
    """An integer vector with an identity for each entry; `None` where they are too many to be sizes."""
    sizes = [dim for dim in shape or () if isinstance(dim, int)]
    # Less than nothing is left in a malformed model only.
    if shape is None or len(sizes) < len(shape) or len(shape) > 1 or not 0 <= sum(sizes) <= MOST_ENTRIES:
        return None
    entries = np.empty(sizes, object)
    entries.reshape(-1)[:] = [UnknownEntry(value, index) for index in range(entries.size)]
    return entries


def declared_shape(
    value: ir.Value | None, disputed: Sequence[int] | None = None
) -> tuple[int | str | None, ...] | None:
    """A value's dimensions as its model states them; `None` when not even the rank is stated.

    A negative size or a name without letters, with which some exporters mean an open one, is one that is not stated.
    Nor is that of a disputed axis: it may be from onnx's inference, which knows another size than onnxruntime makes.
    """
    if value is None or value.shape is None:
        return None
    dims = [_stated_dim(dim) for dim in value.shape.dims]
    return tuple([None if axis in disputed else dim for axis, dim in enumerate(dims)] if disputed else dims)


def _stated_dim(dim: int | ir.SymbolicDim) -> int | str | None:
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return dim.value if dim.value is not None and is_name(dim.value) else None


def stated(shape: Iterable[Dim | None]) -> ir.Shape:
    """A shape as a model can state it: identities of open dimensions are left out."""
    return ir.Shape([dim if isinstance(dim, _STATED) else None for dim in shape])


def empty(shape: Partial | None, dtype: ir.DataType | None) -> Array | None:
    """The value of a tensor that is known to have no elements."""
    if not shape or 0 not in shape or dtype is None:
        return None
    sizes = [dim for dim in shape if isinstance(dim, int)]
    numeric = is_floating(dtype) or is_integer(dtype) or dtype == ir.DataType.BOOL
    # numpy makes no array whose other sizes would be beyond memory.
    small = math.prod(size or 1 for size in sizes) < 1 << 31
    return np.zeros(sizes, dtype.numpy()) if numeric and small and len(sizes) == len(shape) else None


def broadcast(*shapes: Partial | None) -> Partial | None:
    """The shape of an elementwise result; `None` when a rank is unknown."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    stated_shapes = [shape for shape in shapes if shape is not None]
    if len(stated_shapes) != len(shapes) or not stated_shapes:
        return None
    rank = max(len(shape) for shape in stated_shapes)
    return tuple([_broadcast_dim([s[axis] for s in stated_shapes if -axis <= len(s)]) for axis in range(-rank, 0)])


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


def merged(value: ir.Value, found: Partial | None, declared: Partial | None) -> Partial | None:
    """An inferred shape, filled in with what is declared; a rank that contradicts what was found is ignored.

    A rule that finds a dimension to be the value's own does not trust what is declared of it.
    """
    if found is None or declared is None:
        return declared if found is None else found
    if len(found) != len(declared):
        return found
    return tuple(
        [
            a if isinstance(a, Open) and a.value is value else _filled_in(a, b)
            for a, b in zip(found, declared, strict=True)
        ]
    )


def _filled_in(inferred: Dim | None, declared: Dim | None) -> Dim | None:
    if isinstance(inferred, int | str) or declared is None:
        return inferred
    return declared if inferred is None or isinstance(declared, int | str) else inferred


def is_certain(shape: Partial) -> bool:
    """Whether every dimension is known by number or name."""
    return _CERTAIN.issuperset(map(type, shape))


def certain_first(a: Partial | None, b: Partial | None) -> Partial | None:
    """Two pieces of knowledge of one shape: a number tells more than a name, a name more than an identity."""
    if a is None or b is None or len(a) != len(b):
        return b if a is None else a
    return tuple([min(pair, key=lambda dim: _CERTAINTY.get(type(dim), 2)) for pair in zip(a, b, strict=True)])


def filled(value: ir.Value, partial: Partial | None) -> Shape | None:
    """Gives dimensions that are not known an identity."""
    if partial is None:
        return None
    if None not in partial:
        return partial  # type: ignore[return-value]
    return tuple([Open(value, axis) if dim is None else dim for axis, dim in enumerate(partial)])
