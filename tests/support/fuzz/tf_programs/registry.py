"""The registry of ideas: functions that add something to a scope, each with a weight."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.fuzz.tf_programs.scope import Scope

Idea = Callable[[Scope], object]

# Whether an idea makes sense in a graph of TensorFlow 1 alone.
IDEAS: list[tuple[Idea, float, bool]] = []


def idea(weight: float = 1.0, *, graph_only: bool = False) -> Callable[[Idea], Idea]:
    """Registers an idea; one of weight 2 is tried twice as often as one of weight 1."""

    def register(function: Idea) -> Idea:
        IDEAS.append((function, weight, graph_only))
        return function

    return register
