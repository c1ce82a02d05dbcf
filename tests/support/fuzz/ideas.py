"""The registry of ideas: functions that add something to a scope, each with a weight."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tests.support.fuzz.scope import Refused, Scope

Idea = Callable[[Scope], object]

IDEAS: list[tuple[Idea, float, int]] = []


def idea(weight: float = 1.0, *, until: int = 100) -> Callable[[Idea], Idea]:
    """Registers an idea; one of weight 2 is tried twice as often as one of weight 1, in opsets until the last."""

    def register(function: Idea) -> Idea:
        IDEAS.append((function, weight, until))
        return function

    return register


def grow(scope: Scope, count: int) -> None:
    """Tries so many ideas; those that do not work out leave nothing but nodes that nobody reads."""
    functions, weights, lasts = zip(*IDEAS, strict=True)
    # A program that has few kinds of operators has more of each, and more that meet.
    taste = scope.growth.taste
    if not taste:
        likes = [scope.random.choice([0.0, 0.5, 1.0, 4.0]) for _ in weights]
        taste.extend(like * (scope.growth.opset <= last) for like, last in zip(likes, lasts, strict=True))
    weights = tuple(weight * factor + 1e-3 for weight, factor in zip(weights, taste, strict=True))
    for chosen in scope.random.choices(functions, weights, k=count):
        # A choice from nothing (an axis of a scalar, say) is a ValueError or an IndexError.
        with contextlib.suppress(Refused, ValueError, IndexError):
            chosen(scope)
