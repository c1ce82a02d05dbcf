"""Float64 oracles of the ops that read shapes, give arrays another one, or fill one.

Each takes TensorFlow's argument names and returns the outputs under TensorFlow's names. Integers stay integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, index, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("Shape")
def shape(*, input: npt.ArrayLike, out_type: int = 6) -> dict[str, Values]:
    """The sizes."""
    return {"output": np.asarray(np.shape(input), index(out_type))}


@oracle("Size")
def size(*, input: npt.ArrayLike, out_type: int = 6) -> dict[str, Values]:
    """The number of elements."""
    return {"output": np.asarray(np.size(input), index(out_type))}


@oracle("Reshape")
def reshape(*, tensor: npt.ArrayLike, shape: npt.ArrayLike) -> dict[str, Values]:
    """The elements in their order."""
    return {"output": wide(tensor).reshape(ints(shape))}


@oracle("ExpandDims")
def expand_dims(*, input: npt.ArrayLike, axis: npt.ArrayLike) -> dict[str, Values]:
    """An axis more."""
    return {"output": np.expand_dims(wide(input), ints(axis)[0])}


@oracle("Squeeze")
def squeeze(*, input: npt.ArrayLike, squeeze_dims: Sequence[int] = (), axis: Sequence[int] = ()) -> dict[str, Values]:
    """Axes of size 1 fewer."""
    return {"output": np.squeeze(wide(input), axis=(*squeeze_dims, *axis) or None)}


@oracle("EnsureShape", "PlaceholderWithDefault")
def passed(*, input: npt.ArrayLike, shape: Sequence[int], unknown_rank: bool = False) -> dict[str, Values]:
    """The input."""
    return {"output": wide(input)}


@oracle("UnravelIndex")
def unravel_index(*, indices: npt.ArrayLike, dims: npt.ArrayLike) -> dict[str, Values]:
    """Places along each axis."""
    places = np.unravel_index(np.asarray(indices), ints(dims))
    return {"output": np.stack(places).astype(np.asarray(indices).dtype)}


@oracle("Fill")
def fill(*, dims: npt.ArrayLike, value: npt.ArrayLike) -> dict[str, Values]:
    """One value everywhere."""
    return {"output": np.full(ints(dims), wide(value))}


@oracle("ZerosLike")
def zeros_like(*, x: npt.ArrayLike) -> dict[str, Values]:
    """Zeros."""
    return {"y": np.zeros_like(wide(x))}


@oracle("OnesLike")
def ones_like(*, x: npt.ArrayLike) -> dict[str, Values]:
    """Ones."""
    return {"y": np.ones_like(wide(x))}


@oracle("Empty")
def empty(*, shape: npt.ArrayLike, dtype: int, init: bool = False) -> dict[str, Values]:
    """Zeros."""
    return {"output": wide(np.zeros(ints(shape), index(dtype)))}


@oracle("BroadcastTo")
def broadcast_to(*, input: npt.ArrayLike, shape: npt.ArrayLike) -> dict[str, Values]:
    """Repeated."""
    return {"output": np.broadcast_to(wide(input), ints(shape))}


@oracle("BroadcastArgs")
def broadcast_args(*, s0: npt.ArrayLike, s1: npt.ArrayLike) -> dict[str, Values]:
    """The shape of both together."""
    return {"r0": np.asarray(np.broadcast_shapes(tuple(ints(s0)), tuple(ints(s1))), np.asarray(s0).dtype)}


@oracle("Range")
def range_(*, start: npt.ArrayLike, limit: npt.ArrayLike, delta: npt.ArrayLike) -> dict[str, Values]:
    """Steps from start on, counted in float64 or exactly."""
    first, last, step = (wide(value).item() for value in (start, limit, delta))
    count = max(math.ceil((last - first) / step), 0)
    return {"output": (first + step * np.arange(count)).astype(wide(start).dtype)}
