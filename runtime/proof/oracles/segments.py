"""Float64 oracles of the reductions over segments. Integers stay integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.indexing import widen
from lstm_lower.runtime.proof.oracles.numerics import float64
from lstm_lower.runtime.proof.oracles.registry import Oracle, oracle

Array = npt.NDArray[Any]
Reduction = Callable[[Array], Array]


def _reduced(rows: Array, ids: Array, segments: int, reduce: Reduction, empty: Any) -> dict[str, Array]:
    """Each segment's rows reduced over axis 0, and `empty` for segments without any."""
    output = np.full((segments, *rows.shape[1:]), empty, rows.dtype)
    for segment in range(segments):
        chosen = rows[ids == segment]
        if len(chosen):
            output[segment] = reduce(chosen)
    return {"output": output}


def _sum(rows: Array) -> Array:
    return np.asarray(rows.sum(axis=0))


def _mean(rows: Array) -> Array:
    return np.asarray(rows.mean(axis=0))


def _sqrt_n(rows: Array) -> Array:
    return np.asarray(rows.sum(axis=0) / np.sqrt(len(rows)))


def _prod(rows: Array) -> Array:
    return np.asarray(rows.prod(axis=0))


def _max(rows: Array) -> Array:
    return np.asarray(rows.max(axis=0))


def _min(rows: Array) -> Array:
    return np.asarray(rows.min(axis=0))


def _count(ids: Array) -> int:
    return int(ids.max(initial=-1)) + 1


def _sorted(reduce: Reduction, empty: int) -> Oracle:
    def compute(*, data: npt.ArrayLike, segment_ids: npt.ArrayLike) -> dict[str, Array]:
        ids = np.asarray(segment_ids)
        return _reduced(widen(data), ids, _count(ids), reduce, empty)

    return compute


for _op, _reduce, _empty in (
    ("SegmentSum", _sum, 0),
    ("SegmentMean", _mean, 0),
    ("SegmentProd", _prod, 1),
    ("SegmentMax", _max, 0),
    ("SegmentMin", _min, 0),
):
    oracle(_op)(_sorted(_reduce, _empty))


def _unsorted(reduce: Reduction, empty: Callable[[np.dtype[Any]], Any]) -> Oracle:
    def compute(*, data: npt.ArrayLike, segment_ids: npt.ArrayLike, num_segments: npt.ArrayLike) -> dict[str, Array]:
        ids = np.asarray(segment_ids)
        values = widen(data)
        rows = values.reshape(ids.size, *values.shape[ids.ndim :])
        return _reduced(rows, ids.ravel(), int(np.asarray(num_segments)), reduce, empty(np.asarray(data).dtype))

    return compute


def _limits(dtype: np.dtype[Any]) -> Any:
    return np.iinfo(dtype) if dtype.kind == "i" else np.finfo(dtype)


oracle("UnsortedSegmentProd")(_unsorted(_prod, lambda dtype: 1))  # noqa: ARG005 (one signature for the three)
oracle("UnsortedSegmentMax")(_unsorted(_max, lambda dtype: _limits(dtype).min))
oracle("UnsortedSegmentMin")(_unsorted(_min, lambda dtype: _limits(dtype).max))


def _sparse(reduce: Reduction) -> Oracle:
    def compute(
        *,
        data: npt.ArrayLike,
        indices: npt.ArrayLike,
        segment_ids: npt.ArrayLike,
        num_segments: npt.ArrayLike | None = None,
        sparse_gradient: bool = False,
    ) -> dict[str, Array]:
        ids = np.asarray(segment_ids)
        segments = _count(ids) if num_segments is None else int(np.asarray(num_segments))
        return _reduced(float64(data)[np.asarray(indices)], ids, segments, reduce, 0)

    return compute


def _gradient(power: float) -> Oracle:
    def compute(
        *,
        grad: npt.ArrayLike,
        indices: npt.ArrayLike,
        segment_ids: npt.ArrayLike,
        output_dim0: npt.ArrayLike,
    ) -> dict[str, Array]:
        values, ids = float64(grad), np.asarray(segment_ids)
        output = np.zeros((int(np.asarray(output_dim0)), *values.shape[1:]))
        for row, segment in zip(np.asarray(indices), ids, strict=True):
            output[row] += values[segment] / np.count_nonzero(ids == segment) ** power
        return {"output": output}

    return compute


def _rows(power: float) -> Oracle:
    dense = _gradient(power)

    def compute(
        *,
        grad: npt.ArrayLike,
        indices: npt.ArrayLike,
        segment_ids: npt.ArrayLike,
        dense_output_dim0: npt.ArrayLike,
    ) -> dict[str, npt.NDArray[Any]]:
        read = np.unique(np.asarray(indices))
        whole = dense(grad=grad, indices=indices, segment_ids=segment_ids, output_dim0=dense_output_dim0)["output"]
        return {"output": whole[read], "sorted_unique_indices": read}

    return compute


for _name, _reduce, _power in (("Sum", _sum, 0.0), ("Mean", _mean, 1.0), ("SqrtN", _sqrt_n, 0.5)):
    oracle(f"SparseSegment{_name}", f"SparseSegment{_name}WithNumSegments")(_sparse(_reduce))
    oracle(f"SparseSegment{_name}Grad")(_gradient(_power))
    oracle(f"SparseSegment{_name}GradV2")(_rows(_power))
