"""Oracles of the ops on ragged arrays: rows as Python's lists."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.opdef import DType
from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, index, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


def _rows(values: Sequence[Any], splits: Sequence[int]) -> list[list[Any]]:
    return [list(values[start:end]) for start, end in pairwise(splits)]


def _widths(rows: Sequence[Any], depth: int) -> list[int]:
    if not depth:
        return []
    inner = [entry for row in rows for entry in row]
    return [max((len(row) for row in rows), default=0), *_widths(inner, depth - 1)]


def _fill(made: Values, rows: Any, depth: int) -> None:
    for number, row in enumerate(rows[: len(made)]):
        if depth:
            _fill(made[number], row, depth - 1)
        else:
            made[number] = row


@oracle("RaggedTensorToTensor")
def ragged_tensor_to_tensor(
    *,
    shape: npt.ArrayLike,
    values: npt.ArrayLike,
    default_value: npt.ArrayLike,
    row_partition_tensors: Sequence[npt.ArrayLike],
    row_partition_types: Sequence[str],
) -> dict[str, Values]:
    """Rows written one by one."""
    rows: list[Any] = list(wide(values))
    inner, depth = np.shape(values)[1:], 0
    for kind, partition in reversed(list(zip(row_partition_types, row_partition_tensors, strict=True))):
        numbers = ints(partition)
        if kind == "FIRST_DIM_SIZE":
            rows += [[] for _ in range(numbers[0] - len(rows))]
            continue
        depth += 1
        if kind == "VALUE_ROWIDS":
            count = max(numbers, default=-1) + 1
            rows = [
                [row for row, owner in zip(rows, numbers, strict=True) if owner == number] for number in range(count)
            ]
        else:
            rows = _rows(rows, numbers)
    asked = ints(shape) if np.ndim(shape) else []
    natural = [len(rows), *_widths(rows, depth), *inner]
    sizes = [size if size >= 0 else found for size, found in zip([*asked, *[-1] * len(natural)], natural, strict=False)]
    made = np.empty(sizes, np.asarray(values).dtype)
    made[...] = default_value
    _fill(made, rows, depth)
    return {"result": made}


@oracle("RaggedRange")
def ragged_range(
    *, starts: npt.ArrayLike, limits: npt.ArrayLike, deltas: npt.ArrayLike, Tsplits: int = DType.INT64
) -> dict[str, Values]:
    """Numpy's `arange`, row by row."""
    rows = [np.arange(*row) for row in zip(*map(np.ravel, np.broadcast_arrays(starts, limits, deltas)), strict=True)]
    splits = np.cumsum([0, *map(len, rows)])
    values = np.concatenate([np.zeros(0), *rows])
    return {
        "rt_nested_splits": splits.astype(index(Tsplits)),
        "rt_dense_values": values.astype(np.asarray(starts).dtype),
    }


@oracle("RaggedGather")
def ragged_gather(
    *,
    params_nested_splits: Sequence[npt.ArrayLike],
    params_dense_values: npt.ArrayLike,
    indices: npt.ArrayLike,
    OUTPUT_RAGGED_RANK: int,
) -> dict[str, Any]:
    """Rows as lists, chosen and laid out again."""
    rows: list[Any] = list(wide(params_dense_values))
    for splits in reversed(params_nested_splits):
        rows = _rows(rows, ints(splits))
    chosen, made = [rows[number] for number in ints(indices)], []
    for _ in params_nested_splits:
        made.append(np.cumsum([0, *map(len, chosen)]).astype(np.asarray(params_nested_splits[0]).dtype))
        chosen = [entry for row in chosen for entry in row]
    dense = np.asarray(params_dense_values)
    return {
        "output_nested_splits": made,
        "output_dense_values": np.asarray(chosen, dense.dtype).reshape(-1, *dense.shape[1:]),
    }


@oracle("RaggedTensorToSparse")
def ragged_tensor_to_sparse(
    *, rt_nested_splits: Sequence[npt.ArrayLike], rt_dense_values: npt.ArrayLike
) -> dict[str, Values]:
    """Numbers found one by one."""
    dense = wide(rt_dense_values)
    rows: list[Any] = list(dense)
    for splits in reversed(rt_nested_splits):
        rows = _rows(rows, ints(splits))
    found: list[tuple[int, ...]] = []

    def walk(entry: Any, place: tuple[int, ...]) -> None:
        if len(place) == len(rt_nested_splits) + dense.ndim:
            found.append(place)
            return
        for number, part in enumerate(entry):
            walk(part, (*place, number))

    walk(rows, ())
    shape = [len(rows), *_widths(rows, len(rt_nested_splits)), *dense.shape[1:]]
    return {
        "sparse_indices": np.asarray(found, np.int64).reshape(-1, len(shape)),
        "sparse_values": dense.reshape(-1),
        "sparse_dense_shape": np.asarray(shape, np.int64),
    }
