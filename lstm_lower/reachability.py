"""What follows from what, step by step, in any kind of graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reached(start: Iterable[T], following: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """What some things lead to, they themselves among it, each once; the last one's way is gone to its end first."""
    seen: set[T] = set()
    pending = list(start)
    while pending:
        thing = pending.pop()
        if thing not in seen:
            seen.add(thing)
            yield thing
            pending += following(thing)
