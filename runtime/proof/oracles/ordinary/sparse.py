"""Oracles of the ops that rearrange sparse arrays: element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("SparseReshape")
def sparse_reshape(
    *, input_indices: npt.ArrayLike, input_shape: npt.ArrayLike, new_shape: npt.ArrayLike
) -> dict[str, Values]:
    """Through the number that each element has among all."""
    shape = np.empty(ints(input_shape), np.bool_).reshape(ints(new_shape)).shape
    flat = np.ravel_multi_index(tuple(np.asarray(input_indices).T), tuple(ints(input_shape)))
    places = np.stack(np.unravel_index(flat, shape), -1).astype(np.int64)
    return {"output_indices": places, "output_shape": np.asarray(shape, np.int64)}


@oracle("SparseReorder")
def sparse_reorder(
    *, input_indices: npt.ArrayLike, input_values: npt.ArrayLike, input_shape: npt.ArrayLike
) -> dict[str, Values]:
    """Python's sort."""
    places = np.asarray(input_indices)
    order = np.asarray(sorted(range(len(places)), key=lambda number: tuple(places[number])), np.int64)
    return {"output_indices": places[order], "output_values": np.asarray(input_values)[order]}


@oracle("SparseSlice")
def sparse_slice(
    *,
    indices: npt.ArrayLike,
    values: npt.ArrayLike,
    shape: npt.ArrayLike,
    start: npt.ArrayLike,
    size: npt.ArrayLike,
) -> dict[str, Values]:
    """Element by element; the box ends where the array does."""
    places, entries = np.asarray(indices), np.asarray(values)
    first, wanted, sizes = ints(start), ints(size), ints(shape)
    kept = [
        number
        for number, place in enumerate(places)
        if all(a <= int(x) < a + length for x, a, length in zip(place, first, wanted, strict=True))
    ]
    made = [max(min(length, whole - a), 0) for length, whole, a in zip(wanted, sizes, first, strict=True)]
    return {
        "output_indices": places[kept] - np.asarray(first, np.int64),
        "output_values": entries[kept],
        "output_shape": np.asarray(made, np.int64),
    }


@oracle("SparseSliceGrad")
def sparse_slice_grad(
    *,
    backprop_val_grad: npt.ArrayLike,
    input_indices: npt.ArrayLike,
    input_start: npt.ArrayLike,
    output_indices: npt.ArrayLike,
) -> dict[str, Values]:
    """By a dictionary of places."""
    places = np.asarray(input_indices) - np.asarray(input_start)
    return {"val_grad": _known(wide(backprop_val_grad), output_indices, places)}


def _known(values: Values, where: npt.ArrayLike, places: npt.ArrayLike) -> Values:
    known = dict(zip(map(tuple, np.asarray(where).tolist()), values.tolist(), strict=True))
    return np.asarray([known.get(tuple(place), 0) for place in np.asarray(places).tolist()], values.dtype)


@oracle("SparseAdd")
def sparse_add(
    *,
    a_indices: npt.ArrayLike,
    a_values: npt.ArrayLike,
    a_shape: npt.ArrayLike,
    b_indices: npt.ArrayLike,
    b_values: npt.ArrayLike,
    b_shape: npt.ArrayLike,
    thresh: npt.ArrayLike,
) -> dict[str, Values]:
    """By a dictionary of sums, sorted."""
    parts = [
        dict(zip(map(tuple, np.asarray(places).tolist()), wide(values), strict=True))
        for places, values in ((a_indices, a_values), (b_indices, b_values))
    ]
    both = {place: parts[0][place] + parts[1][place] for place in parts[0].keys() & parts[1].keys()}
    sums = {**parts[0], **parts[1], **both}
    kept = [place for place in sorted(sums) if place not in both or abs(sums[place]) >= wide(thresh)]
    return {
        "sum_indices": np.asarray(kept, np.int64).reshape(-1, len(ints(a_shape))),
        "sum_values": np.asarray([sums[place] for place in kept], wide(a_values).dtype),
        "sum_shape": np.asarray(a_shape, np.int64),
    }


@oracle("SparseAddGrad")
def sparse_add_grad(
    *,
    backprop_val_grad: npt.ArrayLike,
    a_indices: npt.ArrayLike,
    b_indices: npt.ArrayLike,
    sum_indices: npt.ArrayLike,
) -> dict[str, Values]:
    """By a dictionary of places."""
    found = (_known(wide(backprop_val_grad), sum_indices, places) for places in (a_indices, b_indices))
    return dict(zip(("a_val_grad", "b_val_grad"), found, strict=True))


@oracle("SparseConcat")
def sparse_concat(
    *,
    indices: Sequence[npt.ArrayLike],
    values: Sequence[npt.ArrayLike],
    shapes: Sequence[npt.ArrayLike],
    concat_dim: int,
    N: int = 0,
) -> dict[str, Values]:
    """Python's sort of all elements at their new places."""
    made: list[tuple[list[int], int]] = []
    before, entries = 0, np.concatenate([np.asarray(part) for part in values])
    for places, shape in zip(indices, shapes, strict=True):
        for place in np.asarray(places).tolist():
            place[concat_dim] += before
            made.append((place, len(made)))
        before += ints(shape)[concat_dim]
    total = ints(shapes[0])
    total[concat_dim] = before
    made.sort(key=lambda element: tuple(element[0]))
    return {
        "output_indices": np.asarray([place for place, _ in made], np.int64).reshape(-1, len(total)),
        "output_values": entries[[number for _, number in made]],
        "output_shape": np.asarray(total, np.int64),
    }


@oracle("SparseFillEmptyRows")
def sparse_fill_empty_rows(
    *, indices: npt.ArrayLike, values: npt.ArrayLike, dense_shape: npt.ArrayLike, default_value: npt.ArrayLike
) -> dict[str, Values]:
    """Row by row."""
    places, entries, rows = np.asarray(indices), np.asarray(values), ints(dense_shape)[0]
    made: list[Values] = []
    found: list[Values] = []
    went = np.zeros(len(places), np.int64)
    empty = np.ones(rows, np.bool_)
    for row in range(rows):
        for number in np.flatnonzero(places[:, 0] == row):
            went[number], empty[row] = len(made), False
            made.append(places[number])
            found.append(entries[number])
        if empty[row]:
            made.append(np.asarray([row, *[0] * (places.shape[1] - 1)]))
            found.append(np.asarray(default_value))
    return {
        "output_indices": np.asarray(made, np.int64).reshape(-1, places.shape[1]),
        "output_values": np.asarray(found, entries.dtype),
        "empty_row_indicator": empty,
        "reverse_index_map": went,
    }


@oracle("SparseFillEmptyRowsGrad")
def sparse_fill_empty_rows_grad(*, reverse_index_map: npt.ArrayLike, grad_values: npt.ArrayLike) -> dict[str, Values]:
    """What is not an element's is the default's."""
    dy, went = wide(grad_values), np.asarray(reverse_index_map)
    rest = np.delete(dy, went)
    return {"d_values": dy[went], "d_default_value": np.asarray(rest.sum(dtype=dy.dtype))}


def dense_of(indices: npt.ArrayLike, values: Values, shape: npt.ArrayLike) -> Values:
    """The array written out."""
    made = np.zeros(ints(shape), values.dtype)
    np.add.at(made, tuple(np.asarray(indices).T), values)
    return made


def _withdense_of(function: Callable[..., Any]) -> Callable[..., dict[str, Values]]:
    def evaluate(
        *, sp_indices: npt.ArrayLike, sp_values: npt.ArrayLike, sp_shape: npt.ArrayLike, dense: npt.ArrayLike
    ) -> dict[str, Values]:
        there = np.broadcast_to(wide(dense), ints(sp_shape))[tuple(np.asarray(sp_indices).T)]
        return {"output": np.asarray(function(wide(sp_values), there))}

    return evaluate


for _op, _function in {
    "SparseDenseCwiseAdd": operator.add,
    "SparseDenseCwiseMul": operator.mul,
    "SparseDenseCwiseDiv": lambda x, y: x / y if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype),
}.items():
    oracle(_op)(_withdense_of(_function))
