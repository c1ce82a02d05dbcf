"""Random numbers of Python and numpy: a trace holds the one that was drawn, and each step would have it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lstm_lower.replacement import replaced

# The least number that is drawn between 0 and 1, and the largest.
EXTREMES = (0.0, 1 - 2.0**-53)


def drawn() -> tuple[Any, ...]:
    """What the next numbers follow from."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    kind, keys, *rest = numpy
    return random.getstate(), kind, keys.tobytes(), *rest


@contextlib.contextmanager
def drawing(share: float) -> Iterator[None]:
    """Lets equally distributed numbers between two bounds lie as far from the lower one as is said."""

    def between(low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        found = low + (high - low) * share
        return found if size is None else np.broadcast_to(found, size).copy()

    def shaped(*shape: int) -> Any:
        return between(size=shape or None)

    def sized(size: Any = None) -> Any:
        return between(size=size)

    functions: list[tuple[Any, str, Callable[..., Any]]] = [
        (random, "random", lambda: share),
        (random, "uniform", between),
        (np.random, "rand", shaped),
        (np.random, "random", sized),
        (np.random, "random_sample", sized),
        (np.random, "uniform", between),
    ]
    with contextlib.ExitStack() as held:
        for holder, name, function in functions:
            held.enter_context(replaced(holder, name, function))
        yield
