"""Cases of the ops that read label sequences off scores, and compare them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.gradient_cases import Operands, rng_of
from tests.support.ordinary.case import FLOATS, Case, draw, grid, text


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
    # Shapes of both sides, of which one may have more sequences; and how many of their elements there are.
    forms = [
        ((4, 6), (4, 5), 0.6),
        ((2, 3), (5, 1), 0.5),
        ((1, 1), (1, 1), 1.0),
        ((3, 4), (3, 7), 1.0),
        ((2, 2, 9), (2, 3, 8), 0.7),
    ]
    for (first, second, part), dtype in grid(forms, (*FLOATS, "int32", "int64", "int8", "uint8", "int16"), "int32"):
        operands = _sparse("hypothesis", first, dtype, part) | _sparse("truth", second, dtype, part)
        for normalize in (True, False):
            what = text(first, second, dtype, normalize)
            yield Case("EditDistance", what, {**operands}, {"normalize": normalize}, steering=STEERING)
    for name, parts in (("no-hypothesis", (0, 1)), ("no-truth", (1, 0)), ("nothing", (0, 0))):
        both = _sparse("hypothesis", (2, 3), "int64", parts[0]) | _sparse("truth", (2, 3), "int64", parts[1])
        yield Case("EditDistance", name, both, steering=STEERING)


STEERING = ("hypothesis_shape", "truth_shape")


def _sparse(side: str, shape: tuple[int, ...], dtype: str, part: float) -> Operands:
    """A part of the elements of an array of few different values."""
    kept = rng_of(side, shape, part).random(shape) < part
    places = np.argwhere(kept)
    values = np.abs(draw((len(places),), "int64", side) % 3).astype(draw((), dtype).dtype)
    return {f"{side}_indices": places, f"{side}_values": values, f"{side}_shape": np.array(shape, np.int64)}
