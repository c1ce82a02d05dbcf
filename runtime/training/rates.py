"""Learning rates as functions of the steps done and of the rate at the beginning, for the callback `LearningRate`.

Schedules that are part of the graph are those of `lstm_lower.passes.training.schedules`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lstm_lower.errors import InvalidInputError

# Steps done, and the rate at the beginning -> the rate of the next step.
Rate = Callable[[int, float], float]


def cosine(total: int, *, warmup: int = 0, end: float = 0.0) -> Rate:
    """Down to `end` along half a cosine (Loshchilov and Hutter, SGDR, equation 5).

    Args:
        total: steps at whose end the rate is `end`, where it stays.
        warmup: steps of these in which the rate first rises to the one at the beginning, in a straight line.
        end: the last rate.

    Raises:
        InvalidInputError: there are no steps between the warm-up and the end.
    """
    _check(total, warmup)

    def rate(step: int, first: float) -> float:
        done = min(max(0, step - warmup), total - warmup) / (total - warmup)
        return _warm(step, warmup, end + (first - end) * (1 + math.cos(math.pi * done)) / 2)

    return rate


def linear(total: int, *, warmup: int = 0, end: float = 0.0) -> Rate:
    """Down to `end` in a straight line; arguments as for `cosine`."""
    _check(total, warmup)

    def rate(step: int, first: float) -> float:
        done = min(max(0, step - warmup), total - warmup) / (total - warmup)
        return _warm(step, warmup, first + (end - first) * done)

    return rate


def steps(every: int, *, factor: float = 0.1, warmup: int = 0) -> Rate:
    """Multiplied by `factor` every so many steps.

    Args:
        every: the steps.
        factor: the factor.
        warmup: as for `cosine`.

    Raises:
        InvalidInputError: `every` or `warmup` is not a number of steps.
    """
    if every < 1 or warmup < 0:
        raise InvalidInputError(f"a schedule in steps requires every >= 1 and warmup >= 0, got {every} and {warmup}")

    def rate(step: int, first: float) -> float:
        return _warm(step, warmup, first * factor ** (step // every))

    return rate


def constant(*, warmup: int = 0) -> Rate:
    """The same after a warm-up."""

    def rate(step: int, first: float) -> float:
        return _warm(step, warmup, first)

    return rate


def _warm(step: int, warmup: int, rate: float) -> float:
    return rate * (step + 1) / warmup if step < warmup else rate


def _check(total: int, warmup: int) -> None:
    if not 0 <= warmup < total:
        raise InvalidInputError(f"a schedule requires 0 <= warmup < total steps, got warmup {warmup} of {total}")
