"""The registry of ideas: functions that add something to a scope, each with a weight."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tests.support.fuzz.scope import Refused, Scope

Idea = Callable[[Scope], object]

IDEAS: list[tuple[Idea, float]] = []


def idea(weight: float = 1.0) -> Callable[[Idea], Idea]:
    """Registers an idea; one of weight 2 is tried twice as often as one of weight 1."""

    def register(function: Idea) -> Idea:
        IDEAS.append((function, weight))
        return function

    return register


def grow(scope: Scope, count: int) -> None:
    """Tries so many ideas; those that do not work out leave nothing but nodes that nobody reads."""
    functions, weights = zip(*IDEAS, strict=True)
    # A program that has few kinds of operators has more of each, and more that meet.
    taste = scope.growth.taste
    if not taste:
        taste.extend(scope.random.choice([0.0, 0.5, 1.0, 4.0]) for _ in weights)
    weights = tuple(weight * factor + 1e-3 for weight, factor in zip(weights, taste, strict=True))
    for chosen in scope.random.choices(functions, weights, k=count):
        # A choice from nothing (an axis of a scalar, say) is a ValueError or an IndexError.
        with contextlib.suppress(Refused, ValueError, IndexError):
            chosen(scope)
