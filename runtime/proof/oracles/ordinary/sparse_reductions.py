"""Float64 oracles of the reductions of sparse arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.sparse import dense_of
from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("SparseReduceSum")
def sparse_reduce_sum(
    *,
    input_indices: npt.ArrayLike,
    input_values: npt.ArrayLike,
    input_shape: npt.ArrayLike,
    reduction_axes: npt.ArrayLike,
    keep_dims: bool = False,
) -> dict[str, Values]:
    """The sum of the array written out."""
    made, axes = dense_of(input_indices, wide(input_values), input_shape), tuple(ints(reduction_axes))
    return {"output": np.asarray(made.sum(axes, keepdims=keep_dims, dtype=made.dtype))}


@oracle("SparseReduceMax")
def sparse_reduce_max(
    *,
    input_indices: npt.ArrayLike,
    input_values: npt.ArrayLike,
    input_shape: npt.ArrayLike,
    reduction_axes: npt.ArrayLike,
    keep_dims: bool = False,
) -> dict[str, Values]:
    """Element by element, into what is there so far."""
    values, sizes = wide(input_values), list(ints(input_shape))
    axes = {int(axis) % len(sizes) for axis in ints(reduction_axes)}
    found: dict[tuple[int, ...], Values] = {}
    for place, value in zip(np.asarray(input_indices), values, strict=True):
        key = tuple(0 if axis in axes else int(at) for axis, at in enumerate(place))
        found[key] = max(found.get(key, value), value)
    output = np.zeros([1 if axis in axes else size for axis, size in enumerate(sizes)], values.dtype)
    for key, value in found.items():
        output[key] = value
    return {"output": output if keep_dims else output.squeeze(tuple(axes))}


@oracle("SparseSoftmax")
def sparse_softmax(
    *, sp_indices: npt.ArrayLike, sp_values: npt.ArrayLike, sp_shape: npt.ArrayLike
) -> dict[str, Values]:
    """Element by element, over those of the same row."""
    places, values = np.asarray(sp_indices)[:, :-1], wide(sp_values)
    same = (places[:, None] == places[None]).all(-1)
    powers = np.where(same, values[None] - values[:, None], -np.inf)
    return {"output": 1 / np.exp(powers).sum(1)}
