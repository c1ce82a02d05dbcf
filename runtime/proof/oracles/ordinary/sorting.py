"""Float64 oracles of the ops that find, count and order elements.

Each takes TensorFlow's argument names and returns the outputs under TensorFlow's names. Integers stay integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.opdef import DType
from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, index, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("Where")
def where(*, condition: npt.ArrayLike) -> dict[str, Values]:
    """Places of what is not zero."""
    return {"index": np.argwhere(wide(condition)).astype(np.int64)}


def _unique(x: Values, along: int, out_idx: int) -> dict[str, Values]:
    """Slices in the order of their first occurrence."""
    _, first, inverse, counts = np.unique(x, axis=along, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    places = np.argsort(order)
    dtype = index(out_idx)
    y = np.take(x, first[order], axis=along)
    return {"y": y, "idx": places[np.ravel(inverse)].astype(dtype), "count": counts[order].astype(dtype)}


@oracle("Unique")
def unique(*, x: npt.ArrayLike, out_idx: int = 6) -> dict[str, Values]:
    """Different elements."""
    found = _unique(wide(x), 0, out_idx)
    return {"y": found["y"], "idx": found["idx"]}


@oracle("UniqueWithCounts")
def unique_with_counts(*, x: npt.ArrayLike, out_idx: int = 6) -> dict[str, Values]:
    """Different elements, counted."""
    return _unique(wide(x), 0, out_idx)


@oracle("UniqueWithCountsV2")
def unique_with_counts_v2(*, x: npt.ArrayLike, axis: npt.ArrayLike, out_idx: int = 6) -> dict[str, Values]:
    """Different slices, counted."""
    return _unique(wide(x), [*ints(axis), 0][0], out_idx)


@oracle("ListDiff")
def list_diff(*, x: npt.ArrayLike, y: npt.ArrayLike, out_idx: int = 6) -> dict[str, Values]:
    """What is not in y."""
    kept = ~np.isin(wide(x), wide(y))
    return {"out": wide(x)[kept], "idx": np.flatnonzero(kept).astype(index(out_idx))}


def _largest(x: Values, count: int, dtype: int) -> dict[str, Values]:
    """A stable sort keeps the order of equal ones; numbers are negated so that the largest come first."""
    keys = -(x.astype(object) if x.dtype.kind in "iu" else x)
    order = np.argsort(keys, axis=-1, kind="stable")[..., :count]
    return {"values": np.take_along_axis(x, order, -1), "indices": order.astype(index(dtype))}


@oracle("TopK")
def top_k(*, input: npt.ArrayLike, k: int, sorted: bool = True) -> dict[str, Values]:
    """The first ones of a sort."""
    return _largest(wide(input), k, 6)


@oracle("TopKV2")
def top_k_v2(*, input: npt.ArrayLike, k: npt.ArrayLike, sorted: bool = True, index_type: int = 6) -> dict[str, Values]:
    """The first ones of a sort."""
    return _largest(wide(input), int(np.asarray(k)), index_type)


@oracle("NthElement")
def nth_element(*, input: npt.ArrayLike, n: npt.ArrayLike, reverse: bool = False) -> dict[str, Values]:
    """One of a sort."""
    ordered = np.sort(wide(input), -1)
    return {"values": ordered[..., -1 - int(np.asarray(n)) if reverse else int(np.asarray(n))]}


@oracle("Bucketize")
def bucketize(*, input: npt.ArrayLike, boundaries: Sequence[float]) -> dict[str, Values]:
    """A search among the boundaries, which are of float32."""
    found = np.searchsorted(np.asarray(boundaries, np.float32), wide(input), "right")
    return {"output": np.asarray(found, np.int32)}


def _bound(rows: npt.ArrayLike, values: npt.ArrayLike, side: Any, out_type: int) -> dict[str, Values]:
    found = [np.searchsorted(row, value, side) for row, value in zip(wide(rows), wide(values), strict=True)]
    return {"output": np.asarray(found, index(out_type)).reshape(np.shape(values))}


@oracle("LowerBound")
def lower_bound(*, sorted_inputs: npt.ArrayLike, values: npt.ArrayLike, out_type: int = 6) -> dict[str, Values]:
    """A search in each row."""
    return _bound(sorted_inputs, values, "left", out_type)


@oracle("UpperBound")
def upper_bound(*, sorted_inputs: npt.ArrayLike, values: npt.ArrayLike, out_type: int = 6) -> dict[str, Values]:
    """A search in each row."""
    return _bound(sorted_inputs, values, "right", out_type)


def _counts(numbers: Values, size: int, weights: Values, *, binary: bool) -> Values:
    bins = np.zeros(size, weights.dtype)
    for number, weight in zip(numbers.ravel(), weights.ravel() if weights.size else np.ones(numbers.size), strict=True):
        if number < size:
            bins[number] = 1 if binary else bins[number] + weight
    return bins


@oracle("Bincount")
def bincount(*, arr: npt.ArrayLike, size: npt.ArrayLike, weights: npt.ArrayLike) -> dict[str, Values]:
    """Counted one by one."""
    return {"bins": _counts(np.asarray(arr), int(np.asarray(size)), wide(weights), binary=False)}


@oracle("DenseBincount")
def dense_bincount(
    *, input: npt.ArrayLike, size: npt.ArrayLike, weights: npt.ArrayLike, binary_output: bool = False
) -> dict[str, Values]:
    """Counted one by one, row by row."""
    x, count, given = np.asarray(input), int(np.asarray(size)), wide(weights)
    if x.ndim == 1:
        return {"output": _counts(x, count, given, binary=binary_output)}
    rows = [
        _counts(row, count, given[number] if given.size else given, binary=binary_output)
        for number, row in enumerate(x)
    ]
    return {"output": np.asarray(rows, given.dtype).reshape(len(x), count)}


@oracle("HistogramFixedWidth")
def histogram_fixed_width(
    *, values: npt.ArrayLike, value_range: npt.ArrayLike, nbins: npt.ArrayLike, dtype: int = DType.INT32
) -> dict[str, Values]:
    """Value by value."""
    x, (start, end), bins = np.ravel(values), np.asarray(value_range), int(np.asarray(nbins))
    counts, width = np.zeros(bins, index(dtype)), np.float64(end - start) / bins
    for value in x[~np.isnan(x)]:
        counts[int(min(np.float64(max(value, start) - start) / width, bins - 1))] += 1
    return {"out": counts}
