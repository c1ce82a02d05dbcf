"""Float64 oracles of the ops on whole arrays. Integers stay integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.indexing import widen
from lstm_lower.runtime.proof.oracles.numerics import float64
from lstm_lower.runtime.proof.oracles.registry import oracle

Array = npt.NDArray[Any]


@oracle("ScatterNd")
def scatter_nd(
    *, indices: npt.ArrayLike, updates: npt.ArrayLike, shape: npt.ArrayLike, bad_indices_policy: str = ""
) -> dict[str, Array]:
    """Updates added into zeros one by one."""
    places, values = np.asarray(indices), widen(updates)
    output = np.zeros(tuple(int(size) for size in np.ravel(shape)), values.dtype)
    for position in np.ndindex(places.shape[:-1]):
        output[tuple(places[position])] += values[position]
    return {"output": output}


@oracle("EuclideanNorm")
def euclidean_norm(*, input: npt.ArrayLike, axis: npt.ArrayLike, keep_dims: bool = False) -> dict[str, Array]:
    """Square root of the sum of squares."""
    axes = tuple(int(number) for number in np.ravel(axis))
    return {"output": np.asarray(np.sqrt(np.square(float64(input)).sum(axis=axes, keepdims=keep_dims)))}


@oracle("LinSpace")
def lin_space(*, start: npt.ArrayLike, stop: npt.ArrayLike, num: npt.ArrayLike) -> dict[str, Array]:
    """Numbers at equal distances."""
    return {"output": np.linspace(float(np.asarray(start)), float(np.asarray(stop)), int(np.asarray(num)))}


@oracle("Rank")
def rank(*, input: npt.ArrayLike) -> dict[str, Array]:
    """The number of axes."""
    return {"output": np.asarray(np.ndim(input), np.int32)}


@oracle("Reverse")
def reverse(*, tensor: npt.ArrayLike, dims: npt.ArrayLike) -> dict[str, Array]:
    """The axes for which dims is true, turned round."""
    return {"output": np.flip(widen(tensor), tuple(int(axis) for axis in np.flatnonzero(dims)))}


@oracle("Diag")
def diag(*, diagonal: npt.ArrayLike) -> dict[str, Array]:
    """A diagonal matrix over the flattened operand, in the operand's shape twice."""
    values = widen(diagonal)
    return {"output": np.diag(values.ravel()).reshape(values.shape * 2)}


@oracle("DiagPart")
def diag_part(*, input: npt.ArrayLike) -> dict[str, Array]:
    """The diagonal of the matrix over the flattened halves of the shape."""
    values = widen(input)
    half = values.shape[: values.ndim // 2]
    size = int(np.prod(half))
    return {"diagonal": np.diag(values.reshape(size, size)).reshape(half)}


@oracle("InTopK", "InTopKV2")
def in_top_k(*, predictions: npt.ArrayLike, targets: npt.ArrayLike, k: npt.ArrayLike) -> dict[str, Array]:
    """Whether fewer than k classes are ahead of the target."""
    found = []
    for row, target in zip(float64(predictions), np.asarray(targets), strict=True):
        known = 0 <= target < len(row) and np.isfinite(row).all()
        found.append(bool(known and np.count_nonzero(row > row[target]) < int(np.asarray(k))))
    return {"precision": np.array(found, bool)}


@oracle("UniqueV2")
def unique_v2(*, x: npt.ArrayLike, axis: npt.ArrayLike, out_idx: int = 6) -> dict[str, Array]:
    """Slices in the order of their first occurrence; `out_idx` is 6 for int32 and 7 for int64, as in ONNX."""
    values = widen(x)
    along = int(np.ravel(axis)[0]) if np.size(axis) else 0
    _, first, inverse = np.unique(values, axis=along, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    dtype = {6: np.int32, 7: np.int64}[out_idx]
    return {"y": np.take(values, first[order], axis=along), "idx": places[inverse.ravel()].astype(dtype)}


@oracle("CumulativeLogsumexp")
def cumulative_logsumexp(
    *, x: npt.ArrayLike, axis: npt.ArrayLike, exclusive: bool = False, reverse: bool = False
) -> dict[str, Array]:
    """A running sum in log space; an exclusive one starts with the log of nothing."""
    along = int(np.asarray(axis))
    values = np.moveaxis(float64(x), along, 0)
    values = values[::-1] if reverse else values
    sums = np.logaddexp.accumulate(values, axis=0) if len(values) else values
    if exclusive and len(values):
        sums = np.concatenate([np.full_like(values[:1], -np.inf), sums[:-1]])
    sums = sums[::-1] if reverse else sums
    return {"out": np.moveaxis(sums, 0, along)}
