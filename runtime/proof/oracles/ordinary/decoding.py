"""Float64 oracles of the ops that read label sequences off scores.

Each takes TensorFlow's argument names and returns the outputs under TensorFlow's names.
"""

from __future__ import annotations

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
