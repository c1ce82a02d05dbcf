"""Updates of weights by optimizers, in groups with options of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, repeated
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.training.optimizers import Optimizer, Slot, resolve, working_dtype
from lstm_lower.passes.training.schedules import ChainedScheduler, MovesMomentum, Schedule
from lstm_lower.passes.training.step import TrainingStep, zeros_of
from lstm_lower.passes.training.torch_optimizers import HasMomentum
from lstm_lower.records.state import Array, StatePair

DOUBLE = ir.DataType.DOUBLE


@dataclasses.dataclass(frozen=True)
class Group:
    """Weights with an optimizer of their own.

    Attributes:
        optimizer: of these weights.
        weights: names of state inputs; `None` for all that no group names.
        schedule: how the learning rate changes, or `None`.
        slots: weight -> slot -> first value, where it is another than the optimizer's.
        steps: number of updates that were done before, elsewhere.
    """

    optimizer: Optimizer
    weights: Collection[str] | None = None
    schedule: Schedule | ChainedScheduler | None = None
    slots: Mapping[str, Mapping[str, Array]] = dataclasses.field(default_factory=dict)
    steps: int = 0


def groups_of(optimizer: Optimizer | Sequence[Group] | str) -> list[Group]:
    """One optimizer, given by an object or a name, as the group of all weights; groups as they are.

    Raises:
        InvalidInputError: it is not one of these.
    """
    if isinstance(optimizer, Sequence) and not isinstance(optimizer, str):
        if not optimizer or not all(isinstance(group, Group) for group in optimizer):
            raise InvalidInputError(f"optimizer requires one or more groups in a list, got {optimizer!r}")
        return list(optimizer)
    return [Group(resolve(optimizer))]


class _Rates:
    """Learning rates: an input for the first group's, to which those of the others are in proportion.

    Attributes:
        kept: inputs for learning rates that are part of the state, and their next values.
    """

    def __init__(self, step: TrainingStep, builder: Builder, rate: ir.Value, first: float, iteration: ir.Value) -> None:
        self._step, self._builder = step, builder
        self.kept: list[tuple[ir.Value, Expr]] = []
        self._rate = builder.wrap(rate).cast(DOUBLE)
        self._count = builder.wrap(iteration).cast(DOUBLE)
        self._first = first

    def of(self, group: Group) -> tuple[Expr, Expr]:
        """A group's learning rate and the number of this update."""
        own, first = group.optimizer.learning_rate, self._first
        if own != first and first == 0:
            raise InvalidInputError(
                "learning rates of groups require a first one that is not zero, to which the others are in proportion, "
                f"got 0.0 and {own}"
            )
        rate = self._rate if own == first else self._rate * (own / first)
        count = self._count if group.steps == 0 else self._count + group.steps
        schedule = group.schedule
        if isinstance(schedule, ChainedScheduler):
            return self._chained(schedule, rate, count), count + 1
        return (rate if schedule is None else schedule.rate(rate, count)), count + 1

    def _chained(self, schedule: ChainedScheduler, first: Expr, count: Expr) -> Expr:
        """A learning rate that is kept, in units of the first one, which may be set."""
        held = self._step.add_input("scheduled_rate", np.asarray(schedule.present, np.float64))
        now = self._builder.wrap(held) * first
        following = schedule.following(now, first, count + 1)
        none = first.equals(0.0)
        kept = self._builder.where(none, self._builder.wrap(held), following / self._builder.where(none, 1.0, first))
        self.kept.append((held, kept))
        return now


def attach(step: TrainingStep, groups: Sequence[Group]) -> None:
    """Adds updates of all weights that have a gradient."""
    members = _members(step, groups)
    first = groups[0].optimizer.learning_rate
    learning_rate = step.add_input("learning_rate", np.asarray(first, np.float32))
    step.state = dataclasses.replace(step.state, learning_rate=learning_rate.name)
    iteration = step.add_input("iteration", np.asarray(0, np.int64))
    b = step.builder("optimizer")
    rates = _Rates(step, b, learning_rate, first, iteration)
    following = b.wrap(iteration) + 1
    updates = []
    for group, pairs in zip(groups, members, strict=True):
        if not pairs:
            continue
        scalars = rates.of(group)
        rule = _moved(group, scalars[1] - 1)
        for pair in pairs:
            weight = b.wrap(step.inputs[pair.input])
            wide = working_dtype(weight.dtype)
            given = group.slots.get(pair.input, {})
            slots = {
                slot: step.add_input(
                    f"{pair.input.removesuffix(':0')}/{slot.name}", _first_value(slot, given, weight.value, wide)
                )
                for slot in group.optimizer.slots
            }
            exprs = {slot.name: b.wrap(value) for slot, value in slots.items()}
            gradient = b.wrap(step.gradients[pair.input])
            new, new_slots = rule.update(weight.cast(wide), gradient.cast(wide), exprs, *scalars)
            updates.append((pair, new.cast(weight.dtype), slots, new_slots))
    for pair, new, slots, new_slots in updates:
        step.complete_pair(pair, new)
        for slot, value in slots.items():
            variable = f"{pair.variable}/{slot.name}" if pair.variable else None
            step.add_pair(value, new_slots[slot.name], "slot", variable=variable)
    for held, kept in rates.kept:
        step.add_pair(held, kept, "slot")
    step.add_pair(iteration, following, "counter")


def _moved(group: Group, count: Expr) -> Optimizer:
    """A group's optimizer with the momentum that its schedule has for it.

    Raises:
        InvalidInputError: it has none to be moved.
    """
    schedule = group.schedule
    if not isinstance(schedule, MovesMomentum) or schedule.momentums is None:
        return group.optimizer
    if not isinstance(group.optimizer, HasMomentum):
        raise InvalidInputError(
            f"a schedule of momentums requires an optimizer of torch_optimizers that has one, got "
            f"{type(group.optimizer).__name__}"
        )
    return group.optimizer.with_momentum(schedule.momentum(count))


def _members(step: TrainingStep, groups: Sequence[Group]) -> list[list[StatePair]]:
    """The weights of each group.

    Raises:
        InvalidInputError: a group names what has no gradient, two name the same, or a weight is in none.
    """
    pairs = {pair.input: pair for pair in step.state.pairs if pair.input in step.gradients}
    named = [name for group in groups for name in group.weights or ()]
    unknown = [name for name in named if name not in pairs]
    twice = repeated(named)
    rest = [name for name in pairs if name not in named]
    open_groups = sum(group.weights is None for group in groups)
    if unknown or twice or open_groups > 1 or (rest and not open_groups):
        what = (
            f"'{unknown[0]}', which has none" if unknown
            else f"two groups with '{twice[0]}'" if twice
            else f"{open_groups} groups for all others" if open_groups > 1
            else f"none with '{rest[0]}'"
        )  # fmt: skip
        raise InvalidInputError(f"groups require each weight with a gradient once, got {what}")
    return [[pairs[name] for name in (rest if group.weights is None else group.weights)] for group in groups]


def _first_value(slot: Slot, given: Mapping[str, Array], weight: ir.Value, dtype: ir.DataType) -> Array:
    if slot.name in given:
        return np.asarray(given[slot.name], dtype.numpy())
    if slot.scalar:
        return np.asarray(slot.initial, dtype.numpy())
    return np.full_like(zeros_of(weight, dtype), slot.initial)
