"""Cases of the ops that read label sequences off scores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.gradient_cases import rng_of
from tests.support.ordinary.case import Case, text


def cases() -> Iterator[Case]:
    for steps, batch, classes in [(7, 3, 4), (12, 2, 3), (1, 1, 2), (5, 4, 3)]:
        for dtype, merge, blank in [
            ("float32", True, -1),
            ("float32", False, -1),
            ("float64", True, 0),
            ("float32", True, -classes),
            ("float64", False, classes - 1),
        ]:
            what = text((steps, batch, classes), dtype, merge, blank)
            rng = rng_of("decoding", what)
            operands = {
                "inputs": rng.standard_normal((steps, batch, classes)).astype(dtype),
                "sequence_length": rng.integers(0, steps + 1, batch).astype(np.int32),
            }
            yield Case("CTCGreedyDecoder", what, operands, {"merge_repeated": merge, "blank_index": blank})
    blanks = np.zeros((4, 2, 3), np.float32)
    blanks[..., 2] = 1
    lengths = np.array([4, 3], np.int32)
    yield Case("CTCGreedyDecoder", "blanks", {"inputs": blanks, "sequence_length": lengths})
    # Of equal scores the first one counts.
    yield Case("CTCGreedyDecoder", "ties", {"inputs": 0 * blanks, "sequence_length": lengths}, {"merge_repeated": True})
