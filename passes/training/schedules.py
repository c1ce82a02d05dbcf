"""Learning rates that follow from the number of updates done, as formulas: the schedulers of PyTorch that have one.

A schedule makes a group's learning rate of its first one, which stays an input, and of the number of updates before
this one; both are float64 scalars. What has no formula is set from step to step: `Trainer.learning_rate`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr


@runtime_checkable
class Schedule(Protocol):
    """The learning rate of an update."""

    def rate(self, first: Expr, count: Expr) -> Expr:
        """The learning rate.

        Args:
            first: the one that the schedule begins with.
            count: number of updates before this one.
        """
        ...


@dataclasses.dataclass(frozen=True)
class StepLR:
    """Multiplied by `gamma` every `step_size` updates."""

    step_size: int
    gamma: float = 0.1

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * _power(self.gamma, count.builder.op(std.Floor, count / self.step_size))


@dataclasses.dataclass(frozen=True)
class MultiStepLR:
    """Multiplied by `gamma` at each of the milestones."""

    milestones: Sequence[int]
    gamma: float = 0.1

    def rate(self, first: Expr, count: Expr) -> Expr:
        b = count.builder
        passed = b.op(std.GreaterOrEqual, count, b.constant([float(it) for it in self.milestones], count.dtype))
        return first * _power(self.gamma, b.op(std.ReduceSum, passed.cast(count.dtype), keepdims=0))


@dataclasses.dataclass(frozen=True)
class ExponentialLR:
    """Multiplied by `gamma` at each update."""

    gamma: float

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * _power(self.gamma, count)


@dataclasses.dataclass(frozen=True)
class ConstantLR:
    """Multiplied by `factor` until `total_iters` updates are done."""

    factor: float = 1 / 3
    total_iters: int = 5

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * count.builder.where(count < self.total_iters, count.like(self.factor), 1.0)


@dataclasses.dataclass(frozen=True)
class LinearLR:
    """Multiplied by what goes from `start_factor` to `end_factor` in `total_iters` updates."""

    start_factor: float = 1 / 3
    end_factor: float = 1.0
    total_iters: int = 5

    def rate(self, first: Expr, count: Expr) -> Expr:
        slope = (self.end_factor - self.start_factor) / self.total_iters
        return first * (count.minimum(self.total_iters) * slope + self.start_factor)


@dataclasses.dataclass(frozen=True)
class PolynomialLR:
    """Multiplied by (1 - count / total_iters)^power."""

    total_iters: int = 5
    power: float = 1.0

    def rate(self, first: Expr, count: Expr) -> Expr:
        left = 1.0 - count.minimum(self.total_iters) / self.total_iters
        return first * left.builder.op(std.Pow, left, left.like(self.power))


@dataclasses.dataclass(frozen=True)
class CosineAnnealingLR:
    """Down to `eta_min` along half a cosine, and up again after `T_max` updates."""

    T_max: int
    eta_min: float = 0.0

    def rate(self, first: Expr, count: Expr) -> Expr:
        wave = count.builder.op(std.Cos, count * (math.pi / self.T_max))
        return (first - self.eta_min) * ((wave + 1) * 0.5) + self.eta_min


@dataclasses.dataclass(frozen=True)
class CosineAnnealingWarmRestarts:
    """Down to `eta_min` along half a cosine every `T_0` updates."""

    T_0: int
    eta_min: float = 0.0

    def rate(self, first: Expr, count: Expr) -> Expr:
        since = count - count.builder.op(std.Floor, count / self.T_0) * self.T_0
        return CosineAnnealingLR(self.T_0, self.eta_min).rate(first, since)


@dataclasses.dataclass(frozen=True)
class LambdaLR:
    """Multiplied by what a function makes of the number of updates, an expression of an expression."""

    factor: Callable[[Expr], Expr | float]

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * self.factor(count)


def _power(base: float, exponent: Expr) -> Expr:
    return exponent.builder.op(std.Pow, exponent.like(base), exponent)
