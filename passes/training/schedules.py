"""Learning rates that follow from the number of updates done, as formulas: the schedulers of PyTorch that have one.

A schedule makes a group's learning rate of its first one, which stays an input, and of the number of updates before
this one; both are float64 scalars. What has no formula is set from step to step: `Trainer.learning_rate`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import onnx_ir as ir

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
    """Down to `eta_min` along half a cosine, again and again: in `T_0` updates, then in `T_mult` times as many."""

    T_0: int
    eta_min: float = 0.0
    T_mult: int = 1

    def rate(self, first: Expr, count: Expr) -> Expr:
        b = count.builder
        if self.T_mult == 1:
            length = count.like(float(self.T_0))
            since = count - b.op(std.Floor, count / length) * length
        else:
            # A logarithm would be rounded just where a restart is; beyond what a float64 counts there is none.
            starts = [float(self.T_0 * (self.T_mult**n - 1) // (self.T_mult - 1)) for n in range(53)]
            starts = [start for start in starts if start < 2**53]
            passed = b.op(std.GreaterOrEqual, count, b.constant(starts[1:], count.dtype)).cast(ir.DataType.INT64)
            number = b.op(std.ReduceSum, passed, keepdims=0)
            lengths = [float(self.T_0 * self.T_mult**n) for n in range(len(starts))]
            since = count - b.op(std.Gather, b.constant(starts, count.dtype), number)
            length = b.op(std.Gather, b.constant(lengths, count.dtype), number)
        wave = b.op(std.Cos, since * math.pi / length)
        return (first - self.eta_min) * ((wave + 1) * 0.5) + self.eta_min


@dataclasses.dataclass(frozen=True)
class SequentialLR:
    """One schedule after the other, each counting updates from its milestone."""

    schedules: Sequence[Schedule]
    milestones: Sequence[int]

    def rate(self, first: Expr, count: Expr) -> Expr:
        chosen = self.schedules[0].rate(first, count)
        for schedule, start in zip(self.schedules[1:], self.milestones, strict=True):
            chosen = count.builder.where(count < start, chosen, schedule.rate(first, (count - start).maximum(0)))
        return chosen


@dataclasses.dataclass(frozen=True)
class LambdaLR:
    """Multiplied by what a function makes of the number of updates, an expression of an expression."""

    factor: Callable[[Expr], Expr | float]

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * self.factor(count)


def _power(base: float, exponent: Expr) -> Expr:
    return exponent.builder.op(std.Pow, exponent.like(base), exponent)
