"""Float64 oracles of the ops that cut parts out of arrays, look elements up, or change them at their places.

Each takes TensorFlow's argument names and returns the outputs under TensorFlow's names. Integers stay integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.indexing import slice_index
from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("Slice")
def slice_(*, input: npt.ArrayLike, begin: npt.ArrayLike, size: npt.ArrayLike) -> dict[str, Values]:
    """So many elements from a place on."""
    parts = [slice(b, None if s < 0 else b + s) for b, s in zip(ints(begin), ints(size), strict=True)]
    return {"output": wide(input)[tuple(parts)]}


@oracle("StridedSlice")
def strided_slice(
    *,
    input: npt.ArrayLike,
    begin: npt.ArrayLike,
    end: npt.ArrayLike,
    strides: npt.ArrayLike,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> dict[str, Values]:
    """As numpy has it."""
    place = slice_index(
        begin,
        end,
        strides,
        begin_mask=begin_mask,
        end_mask=end_mask,
        ellipsis_mask=ellipsis_mask,
        new_axis_mask=new_axis_mask,
        shrink_axis_mask=shrink_axis_mask,
    )
    return {"output": np.asarray(wide(input)[place])}


@oracle("Gather")
def gather(*, params: npt.ArrayLike, indices: npt.ArrayLike, validate_indices: bool = True) -> dict[str, Values]:
    """Rows."""
    return {"output": wide(params)[np.asarray(indices)]}


@oracle("GatherV2")
def gather_v2(
    *, params: npt.ArrayLike, indices: npt.ArrayLike, axis: npt.ArrayLike, batch_dims: int = 0
) -> dict[str, Values]:
    """Slices along the axis, entry of the batch by entry."""
    x, places = wide(params), np.asarray(indices)
    along, batch = ints(axis)[0] % x.ndim, batch_dims + (places.ndim if batch_dims < 0 else 0)
    shape = (*x.shape[:along], *places.shape[batch:], *x.shape[along + 1 :])
    output = np.zeros(shape, x.dtype)
    for entry in np.ndindex(*x.shape[:batch]):
        output[entry] = np.take(x[entry], places[entry], along - batch)
    return {"output": output}


@oracle("GatherNd")
def gather_nd(*, params: npt.ArrayLike, indices: npt.ArrayLike, bad_indices_policy: str = "") -> dict[str, Values]:
    """Slices by place."""
    x, places = wide(params), np.asarray(indices)
    output = np.zeros((*places.shape[:-1], *x.shape[places.shape[-1] :]), x.dtype)
    for entry in np.ndindex(*places.shape[:-1]):
        output[entry] = x[tuple(places[entry])]
    return {"output": output}


@oracle("OneHot")
def one_hot(
    *,
    indices: npt.ArrayLike,
    depth: npt.ArrayLike,
    on_value: npt.ArrayLike,
    off_value: npt.ArrayLike,
    axis: int = -1,
) -> dict[str, Values]:
    """On where the index is."""
    hot = np.equal.outer(np.asarray(indices).astype(np.int64), np.arange(int(np.asarray(depth))))
    return {"output": np.moveaxis(np.where(hot, wide(on_value), wide(off_value)), -1, axis)}


@oracle("InvertPermutation")
def invert_permutation(*, x: npt.ArrayLike) -> dict[str, Values]:
    """Where each number stands."""
    return {"y": np.argsort(x).astype(np.asarray(x).dtype)}


_CHANGES: dict[str, Any] = {
    "TensorScatterUpdate": lambda _, new: new,
    "TensorScatterAdd": np.add,
    "TensorScatterSub": np.subtract,
    "TensorScatterMax": np.maximum,
    "TensorScatterMin": np.minimum,
}


def _changed(tensor: Values, places: Values, updates: Values, change: Any) -> Values:
    """A copy, changed place by place."""
    output = tensor.copy()
    for entry in np.ndindex(*places.shape[:-1]):
        place = tuple(places[entry])
        output[place] = change(output[place], updates[entry])
    return output


def _scatter(op: str) -> None:
    @oracle(op)
    def scatter(
        *, tensor: npt.ArrayLike, indices: npt.ArrayLike, updates: npt.ArrayLike, bad_indices_policy: str = ""
    ) -> dict[str, Values]:
        return {"output": _changed(wide(tensor), np.asarray(indices), wide(updates), _CHANGES[op])}


for _op in _CHANGES:
    _scatter(_op)


@oracle("SparseToDense")
def sparse_to_dense(
    *,
    sparse_indices: npt.ArrayLike,
    output_shape: npt.ArrayLike,
    sparse_values: npt.ArrayLike,
    default_value: npt.ArrayLike,
    validate_indices: bool = True,
) -> dict[str, Values]:
    """Values written into the default."""
    places = np.asarray(sparse_indices)
    rows = places.reshape(-1, 1) if places.ndim < 2 else places
    values = np.broadcast_to(wide(sparse_values), (len(rows),))
    dense = np.full(ints(output_shape), wide(default_value))
    return {"dense": _changed(dense, rows, values, _CHANGES["TensorScatterUpdate"])}


@oracle("SparseTensorDenseAdd")
def sparse_tensor_dense_add(
    *, a_indices: npt.ArrayLike, a_values: npt.ArrayLike, a_shape: npt.ArrayLike, b: npt.ArrayLike
) -> dict[str, Values]:
    """Values added."""
    return {"output": _changed(wide(b), np.asarray(a_indices), wide(a_values), np.add)}


@oracle("SparseTensorDenseMatMul")
def sparse_tensor_dense_matmul(
    *,
    a_indices: npt.ArrayLike,
    a_values: npt.ArrayLike,
    a_shape: npt.ArrayLike,
    b: npt.ArrayLike,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
) -> dict[str, Values]:
    """The product of the matrices written out."""
    values, dense = wide(a_values), wide(b)
    sparse = _changed(np.zeros(ints(a_shape), values.dtype), np.asarray(a_indices), values, np.add)
    return {"product": (sparse.T if adjoint_a else sparse) @ (dense.T if adjoint_b else dense)}
