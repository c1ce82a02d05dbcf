"""Calls of CTCLoss: the grid over which its oracle and its lowering are compared with TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CtcCase:
    """One call.

    Attributes:
        sizes: T, B, C.
        labels: the labels of each sequence.
        lengths: steps of each sequence.
        merge, collapse, ignore: ctc_merge_repeated, preprocess_collapse_repeated, ignore_longer_outputs_than_inputs.
        dtype: of the logits.
        runs: whether TensorFlow's CPU kernel takes it.
    """

    sizes: tuple[int, int, int]
    labels: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    merge: bool = True
    collapse: bool = False
    ignore: bool = False
    dtype: str = "float32"
    runs: bool = True

    @property
    def id(self) -> str:
        options = [name for name in ("merge", "collapse", "ignore") if getattr(self, name)]
        labels = "/".join(",".join(map(str, values)) for values in self.labels) if self.sizes[0] < 10 else "long"
        return f"{self.sizes}-{labels}-{self.lengths}-{'+'.join(options)}-{self.dtype}".replace(" ", "")

    def operands(self) -> dict[str, Array]:
        rng = np.random.default_rng([*self.sizes, *self.lengths])
        places = [(row, column) for row, values in enumerate(self.labels) for column in range(len(values))]
        return {
            "inputs": (2 * rng.standard_normal(self.sizes)).astype(self.dtype),
            "labels_indices": np.array(places, np.int64).reshape(-1, 2),
            "labels_values": np.array([value for values in self.labels for value in values], np.int32),
            "sequence_length": np.array(self.lengths, np.int32),
        }

    def attributes(self) -> dict[str, bool]:
        return {
            "preprocess_collapse_repeated": self.collapse,
            "ctc_merge_repeated": self.merge,
            "ignore_longer_outputs_than_inputs": self.ignore,
        }


LONG = tuple(tuple((7 * row + 3 * k) % 27 for k in range(5 + 3 * row)) for row in range(4))

CASES = [
    CtcCase((6, 2, 5), ((0, 1), (2, 2)), (6, 5)),
    CtcCase((6, 2, 5), ((0, 1), (2, 2)), (6, 5), merge=False),
    CtcCase((6, 2, 5), ((0, 1), (2, 2)), (6, 5), collapse=True),
    CtcCase((6, 2, 5), ((0, 1), (2, 2)), (6, 5), merge=False, collapse=True),
    CtcCase((6, 2, 5), ((0, 1), (2, 2)), (6, 5), dtype="float64"),
    CtcCase((6, 1, 5), ((0, 0, 1, 1),), (6,)),
    CtcCase((6, 1, 5), ((0, 0, 1, 1),), (6,), collapse=True),
    CtcCase((4, 1, 5), ((0, 0, 1, 1),), (4,), merge=False),
    CtcCase((6, 2, 5), ((0, 1), (2, 2, 1)), (6, 2), ignore=True),
    CtcCase((3, 2, 5), ((0, 1), (2, 2)), (3, 2), ignore=True),
    CtcCase((6, 2, 5), ((0,), (1,)), (6, 0), ignore=True),
    CtcCase((6, 3, 5), ((0, 1), (2, 4), (3, 4, 4)), (6, 5, 4)),
    CtcCase((1, 1, 2), ((0,),), (1,)),
    CtcCase((40, 4, 28), LONG, (40, 30, 35, 29)),
    CtcCase((6, 2, 5), ((0, 1), ()), (6, 4), runs=False),
    CtcCase((6, 2, 5), ((), ()), (6, 4), runs=False),
    CtcCase((6, 2, 5), ((0, 1), (2, 3, 1)), (6, 2), runs=False),
    CtcCase((6, 2, 5), ((0,), (1,)), (6, 0), runs=False),
]
