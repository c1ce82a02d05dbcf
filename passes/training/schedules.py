"""Learning rates that follow from the number of updates done, as formulas: the schedulers of PyTorch that have one.

A schedule makes a group's learning rate of its first one, which stays an input, and of the number of updates before
this one; both are float64 scalars. What has no formula is set from step to step: `Trainer.learning_rate`.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr


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


@runtime_checkable
class Link(Schedule, Protocol):
    """What may be a part of a chain: it makes a learning rate of the one before, which others may have changed."""

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:
        """The learning rate behind an update.

        Args:
            rate: the one before.
            first: the one that the schedule begins with.
            count: number of updates, that one included.
        """
        ...


@runtime_checkable
class MovesMomentum(Protocol):
    """A schedule that moves an optimizer's momentum, or its first beta, too."""

    @property
    def momentums(self) -> tuple[float, float] | None:
        """The least and the largest; `None` where it leaves it."""
        ...

    def momentum(self, count: Expr) -> Expr:
        """The momentum of an update; `count` as for `Schedule.rate`."""
        ...


@dataclasses.dataclass(frozen=True)
class StepLR:
    """Multiplied by `gamma` every `step_size` updates."""

    step_size: int
    gamma: float = 0.1

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * self.gamma ** (count / self.step_size).floor()

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:  # noqa: ARG002
        b = count.builder
        at_end = ((count / self.step_size).floor() * self.step_size).equals(count)
        return b.where(at_end, rate * self.gamma, rate)


@dataclasses.dataclass(frozen=True)
class MultiStepLR:
    """Multiplied by `gamma` at each of the milestones."""

    milestones: Sequence[int]
    gamma: float = 0.1

    def rate(self, first: Expr, count: Expr) -> Expr:
        b = count.builder
        passed = count >= b.constant([float(it) for it in self.milestones], count.dtype)
        return first * self.gamma ** b.op(std.ReduceSum, passed.cast(count.dtype), keepdims=0)

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:  # noqa: ARG002
        b = count.builder
        reached = count.equals(b.constant([float(it) for it in self.milestones], count.dtype))
        return rate * self.gamma ** b.op(std.ReduceSum, reached.cast(count.dtype), keepdims=0)


@dataclasses.dataclass(frozen=True)
class ExponentialLR:
    """Multiplied by `gamma` at each update."""

    gamma: float

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * self.gamma**count

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:  # noqa: ARG002
        return rate * self.gamma


@dataclasses.dataclass(frozen=True)
class ConstantLR:
    """Multiplied by `factor` until `total_iters` updates are done."""

    factor: float = 1 / 3
    total_iters: int = 5

    def rate(self, first: Expr, count: Expr) -> Expr:
        # PyTorch never takes back what zero updates have.
        during = count < (self.total_iters or math.inf)
        return first * count.builder.where(during, count.like(self.factor), 1.0)

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:  # noqa: ARG002
        at_end = count.equals(float(self.total_iters))
        return count.builder.where(at_end, rate / self.factor, rate)


@dataclasses.dataclass(frozen=True)
class LinearLR:
    """Multiplied by what goes from `start_factor` to `end_factor` in `total_iters` updates."""

    start_factor: float = 1 / 3
    end_factor: float = 1.0
    total_iters: int = 5

    @property
    def _slope(self) -> float:
        return (self.end_factor - self.start_factor) / (self.total_iters or math.inf)

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * (count.minimum(self.total_iters) * self._slope + self.start_factor)

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:  # noqa: ARG002
        now, last = (past * self._slope + self.start_factor for past in (count, count - 1))
        grown = rate * (now / last)
        return count.builder.where(count > float(self.total_iters), rate, grown)


@dataclasses.dataclass(frozen=True)
class PolynomialLR:
    """Multiplied by (1 - count / total_iters)^power."""

    total_iters: int = 5
    power: float = 1.0

    def rate(self, first: Expr, count: Expr) -> Expr:
        left = 1.0 - count.minimum(self.total_iters) / (self.total_iters or math.inf)
        return first * left**self.power

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:  # noqa: ARG002
        left = (self.total_iters - count) / (self.total_iters + 1 - count)
        shrunk = rate * left**self.power
        return count.builder.where(count > float(self.total_iters), rate, shrunk)


@dataclasses.dataclass(frozen=True)
class CosineAnnealingLR:
    """Down to `eta_min` along half a cosine, and up again after `T_max` updates."""

    T_max: int
    eta_min: float = 0.0

    def rate(self, first: Expr, count: Expr) -> Expr:
        wave = count.builder.op(std.Cos, count * (math.pi / self.T_max))
        return (first - self.eta_min) * ((wave + 1) * 0.5) + self.eta_min

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:
        b = count.builder
        angle = math.pi / self.T_max
        now, before = (b.op(std.Cos, it * angle) + 1 for it in (count, count - 1))
        moved = now / before * (rate - self.eta_min) + self.eta_min
        # At its lowest there is nothing to multiply: up again by the first rate's share.
        up = rate + (first - self.eta_min) * ((1 - math.cos(angle)) / 2)
        since = count - 1 - self.T_max
        lowest = ((since / (2 * self.T_max)).floor() * (2 * self.T_max)).equals(since)
        return b.where(lowest, up, moved)


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
            since = count - (count / length).floor() * length
        else:
            # A logarithm would be rounded just where a restart is; beyond what a float64 counts there is none.
            starts = [float(self.T_0 * (self.T_mult**n - 1) // (self.T_mult - 1)) for n in range(53)]
            starts = [start for start in starts if start < 2**53]
            passed = (count >= b.constant(starts[1:], count.dtype)).cast(ir.DataType.INT64)
            number = b.op(std.ReduceSum, passed, keepdims=0)
            lengths = [float(self.T_0 * self.T_mult**n) for n in range(len(starts))]
            since = count - b.constant(starts, count.dtype).take(number)
            length = b.constant(lengths, count.dtype).take(number)
        wave = b.op(std.Cos, since * math.pi / length)
        return (first - self.eta_min) * ((wave + 1) * 0.5) + self.eta_min

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:  # noqa: ARG002
        return self.rate(first, count)


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
class SWALR:
    """From the first one to `swa_lr` in `anneal_epochs` updates, along half a cosine or in a straight line."""

    swa_lr: float
    anneal_epochs: int = 10
    anneal_strategy: Literal["cos", "linear"] = "cos"

    def rate(self, first: Expr, count: Expr) -> Expr:
        if not self.anneal_epochs:
            return first.like(self.swa_lr)
        part = (count / self.anneal_epochs).minimum(1)
        if self.anneal_strategy == "cos":
            part = (1.0 - part.builder.op(std.Cos, part * math.pi)) * 0.5
        return first * (1.0 - part) + part * self.swa_lr


@dataclasses.dataclass(frozen=True)
class OneCycleLR:
    """Up to `max_factor` times the first one and down to `min_factor` times (Smith and Topin, 2017).

    What comes after the last of its updates, where PyTorch raises an error, has the last rate.

    Attributes:
        ends: numbers of updates at which its phases end: up, down, and with `three_phase` down again.
        total_steps: updates in all.
        max_factor: largest rate in units of the first.
        min_factor: last rate in units of the first.
        anneal_strategy: the way from one to the next.
        momentums: least and largest momentum, which goes the other way; `None` to leave it.
    """

    ends: Sequence[float]
    total_steps: int
    max_factor: float = 25.0
    min_factor: float = 1e-4
    anneal_strategy: Literal["cos", "linear"] = "cos"
    momentums: tuple[float, float] | None = None

    def rate(self, first: Expr, count: Expr) -> Expr:
        middle = [1.0] if len(self.ends) > 2 else []
        return first * self._between([1.0, self.max_factor, *middle, self.min_factor], count)

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:  # noqa: ARG002
        return self.rate(first, count)

    def momentum(self, count: Expr) -> Expr:
        assert self.momentums is not None
        least, largest = self.momentums
        return self._between([largest, least, *[largest] * (len(self.ends) - 1)], count)

    def _between(self, values: Sequence[float], count: Expr) -> Expr:
        """From each value to the next, one in each phase."""
        b = count.builder
        count = count.minimum(self.total_steps)
        rate: Expr | None = None
        starts = (0.0, *self.ends[:-1])
        for start, end, value, following in reversed([*zip(starts, self.ends, values, values[1:], strict=False)]):
            part = (count - start) / (end - start)
            if self.anneal_strategy == "cos":
                here = (b.op(std.Cos, part * math.pi) + 1) * ((value - following) / 2) + following
            else:
                here = part * (following - value) + value
            rate = here if rate is None else b.where(count > end, rate, here)
        assert rate is not None
        return rate


@dataclasses.dataclass(frozen=True)
class CyclicLR:
    """Up and down again in straight lines (Smith, 2015).

    Attributes:
        max_lr: largest rate.
        step_size_up: updates on the way up.
        step_size_down: updates on the way down; `None` for as many.
        mode: `triangular2` halves the height after each cycle, `exp_range` multiplies it by `gamma` at each update.
        gamma: see there.
        base_lr: least rate; `None` for the first one.
        momentums: least and largest momentum, which goes the other way; `None` to leave it.
    """

    max_lr: float
    step_size_up: float = 2000.0
    step_size_down: float | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: float = 1.0
    base_lr: float | None = None
    momentums: tuple[float, float] | None = None

    def rate(self, first: Expr, count: Expr) -> Expr:
        base = first if self.base_lr is None else first.like(self.base_lr)
        return base + (base.like(self.max_lr) - base) * self._height(count)

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:  # noqa: ARG002
        return self.rate(first, count)

    def momentum(self, count: Expr) -> Expr:
        assert self.momentums is not None
        least, largest = self.momentums
        return self._height(count) * (least - largest) + largest

    def _height(self, count: Expr) -> Expr:
        """Where between the two, from 0 to 1."""
        b = count.builder
        total = self.step_size_up + (self.step_size_up if self.step_size_down is None else self.step_size_down)
        ratio = self.step_size_up / total
        cycle = (count / total + 1.0).floor()
        part = count / total + 1.0 - cycle
        height = b.where(part > ratio, (part - 1.0) / (ratio - 1.0), part / ratio)
        if self.mode == "triangular2":
            return height * 0.5 ** (cycle - 1.0)
        return height * self.gamma**count if self.mode == "exp_range" else height


@dataclasses.dataclass(frozen=True)
class ChainedScheduler:
    """Schedules that each change what the ones before have left, so that its learning rate is a part of the state.

    Attributes:
        schedules: in the order in which they are stepped.
        present: the learning rate that it begins with, in units of the first one.
    """

    schedules: Sequence[Link]
    present: float

    def following(self, rate: Expr, first: Expr, count: Expr) -> Expr:
        """The learning rate behind an update, see `Link`."""
        for schedule in self.schedules:
            rate = schedule.following(rate, first, count)
        return rate

    @property
    def momentums(self) -> tuple[float, float] | None:
        """See `MovesMomentum`."""
        moving = self._moving
        return None if moving is None else moving.momentums

    def momentum(self, count: Expr) -> Expr:
        """See `MovesMomentum`."""
        assert self._moving is not None
        return self._moving.momentum(count)

    @property
    def _moving(self) -> MovesMomentum | None:
        """The last one that moves the momentum."""
        moving = [it for it in self.schedules if isinstance(it, MovesMomentum) and it.momentums is not None]
        return moving[-1] if moving else None


@dataclasses.dataclass(frozen=True)
class LambdaLR:
    """Multiplied by what a function makes of the number of updates, an expression of an expression."""

    factor: Callable[[Expr], Expr | float]

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * self.factor(count)


# Learning rates in a table: those of schedules that are not a formula of the number of updates.


# How the node that reads a table is called, so that errors of any runtime say what is wrong.
_NAME = "the_schedule_ends_after_{}_updates"


def ended(message: str) -> int | None:
    """The number of updates in the table whose end an error of onnxruntime is about; `None` for any other error."""
    match = re.search(_NAME.format(r"(\d+)"), message)
    return None if match is None else int(match[1])


@dataclasses.dataclass(frozen=True)
class RateTable:
    """Multiplied by an entry for each update.

    Behind the last one there is no learning rate: onnxruntime's processor kernels fail by the name of the node that
        reads the table, and where a kernel does not look at bounds, the rate is NaN.

    Attributes:
        factors: of the updates from `start` on, in units of the first rate.
        start: number of updates that were done before the first of them.
        table: momentum, or first beta, of each update; empty where it stays.
    """

    factors: tuple[float, ...]
    start: int = 0
    table: tuple[float, ...] = ()

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * self._entry(self.factors, count)

    @property
    def momentums(self) -> tuple[float, float] | None:
        """See `MovesMomentum`."""
        return (min(self.table), max(self.table)) if self.table else None

    def momentum(self, count: Expr) -> Expr:
        """See `MovesMomentum`."""
        return self._entry(self.table, count)

    def _entry(self, table: tuple[float, ...], count: Expr) -> Expr:
        b = count.builder
        end = self.start + len(table)
        index = (count - self.start).cast(ir.DataType.INT64)
        entry = b.constant(np.asarray(table), count.dtype).take(index)
        reader = entry.value.producer()
        assert reader is not None
        reader.name = b.names.fresh(f"{_NAME.format(end)}/{reader.op_type}")
        return b.where(count < float(end), entry, math.nan)
