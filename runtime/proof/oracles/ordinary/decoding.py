"""Float64 oracles of the ops that read label sequences off scores, and compare them.

Each takes TensorFlow's argument names and returns the outputs under TensorFlow's names.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("CTCGreedyDecoder")
def ctc_greedy_decoder(
    *, inputs: npt.ArrayLike, sequence_length: npt.ArrayLike, merge_repeated: bool = False, blank_index: int = -1
) -> dict[str, Values]:
    """One sequence and one step at a time."""
    scores = wide(inputs)
    _, batch, classes = scores.shape
    blank = blank_index % classes
    rows: list[list[int]] = []
    total = np.zeros((batch, 1))
    for row, length in enumerate(ints(sequence_length)):
        last, found = -1, list[int]()
        for step in scores[:length, row]:
            best = int(np.argmax(step))
            total[row] -= step[best]
            if best != blank and not (merge_repeated and best == last):
                found.append(best)
            last = best
        rows.append(found)
    places = [(row, place) for row, found in enumerate(rows) for place in range(len(found))]
    return {
        "decoded_indices": np.asarray(places, np.int64).reshape(-1, 2),
        "decoded_values": np.asarray([label for found in rows for label in found], np.int64),
        "decoded_shape": np.asarray([batch, max(map(len, rows), default=0)], np.int64),
        "log_probability": total,
    }


@oracle("EditDistance")
def edit_distance(
    *,
    hypothesis_indices: npt.ArrayLike,
    hypothesis_values: npt.ArrayLike,
    hypothesis_shape: npt.ArrayLike,
    truth_indices: npt.ArrayLike,
    truth_values: npt.ArrayLike,
    truth_shape: npt.ArrayLike,
    normalize: bool = True,
) -> dict[str, Values]:
    """Pair by pair, by recursion over the sequences' beginnings."""
    output = np.zeros(np.maximum(hypothesis_shape, truth_shape)[:-1])
    first, second = _by_place(hypothesis_indices, hypothesis_values), _by_place(truth_indices, truth_values)
    for place in {*first, *second}:
        ours, true = first.get(place, []), second.get(place, [])
        distance = _distance(tuple(ours), tuple(true))
        if normalize:
            output[place] = distance / len(true) if true else np.inf
        else:
            output[place] = distance
    return {"output": output}


def _by_place(indices: npt.ArrayLike, values: npt.ArrayLike) -> dict[tuple[int, ...], list[float]]:
    found: dict[tuple[int, ...], list[float]] = {}
    for place, value in zip(np.asarray(indices).tolist(), wide(values).tolist(), strict=True):
        found.setdefault(tuple(place[:-1]), []).append(value)
    return found


@functools.cache
def _distance(first: tuple[float, ...], second: tuple[float, ...]) -> int:
    if not first or not second:
        return len(first) + len(second)
    replaced = _distance(first[:-1], second[:-1]) + (first[-1] != second[-1])
    return min(replaced, _distance(first[:-1], second) + 1, _distance(first, second[:-1]) + 1)
