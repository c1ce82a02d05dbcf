"""Updates of weights by optimizers, in groups with options of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, repeated
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.copies import Copier
from lstm_lower.passes.training.optimizers import BY_NAME, Optimizer, OptimizerSlot, resolve, working_dtype
from lstm_lower.passes.training.schedules import ChainedScheduler, MovesMomentum, Schedule
from lstm_lower.passes.training.step import TrainingStep
from lstm_lower.passes.training.torch_optimizers import HasMomentum
from lstm_lower.records import recipe
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


def groups_of(optimizer: Optimizer | Sequence[Group] | str, by_name: Mapping[str, Optimizer] = BY_NAME) -> list[Group]:
    """One optimizer, given by an object or a name, as the group of all weights; groups as they are.

    Args:
        optimizer: any of these.
        by_name: what names stand for.

    Raises:
        InvalidInputError: it is not one of these.
    """
    if isinstance(optimizer, Sequence) and not isinstance(optimizer, str):
        if not optimizer or not all(isinstance(group, Group) for group in optimizer):
            raise InvalidInputError(f"optimizer requires one or more groups in a list, got {optimizer!r}")
        return list(optimizer)
    return [Group(resolve(optimizer, by_name))]


@dataclasses.dataclass(frozen=True)
class UpdateRate:
    """The learning rate of a group of weights, and how it changes.

    Attributes:
        learning_rate: the first one.
        schedule: how it changes, or `None`.
        steps: number of updates that were done before, elsewhere.
    """

    learning_rate: float
    schedule: Schedule | ChainedScheduler | None = None
    steps: int = 0


@dataclasses.dataclass(frozen=True)
class UpdateModel:
    """An update of all weights at once, as a model.

    Attributes:
        model: of learning rates by group (float64), weights, gradients and state, in this order, to new weights and
            new state. It has no functions.
        weights: names of state inputs of the step.
        state: name -> first value.
        counters: names of what of the state counts.
        rates: by group.
    """

    model: ir.Model
    weights: Sequence[str]
    state: Mapping[str, Array]
    counters: Collection[str]
    rates: Sequence[UpdateRate]


class _Rates:
    """Learning rates: an input for the first group's, to which those of the others are in proportion.

    Attributes:
        iterations: number of updates done before -> the input that counts them.
    """

    def __init__(self, step: TrainingStep, builder: Builder, rates: Sequence[UpdateRate]) -> None:
        self._step, self._builder = step, builder
        self._first = rates[0].learning_rate
        self._kept: list[tuple[ir.Value, Expr]] = []
        given = step.add_input("learning_rate", np.asarray(self._first, np.float32))
        step.state = dataclasses.replace(step.state, learning_rate=given.name)
        self._rate = builder.wrap(given).cast(DOUBLE)
        counts = dict.fromkeys(rate.steps for rate in rates)
        self.iterations = {count: step.add_input("iteration", np.asarray(count, np.int64)) for count in counts}
        self._counts = {count: builder.wrap(value).cast(DOUBLE) for count, value in self.iterations.items()}
        self._following = {count: builder.wrap(value) + 1 for count, value in self.iterations.items()}

    def close(self) -> None:
        """Carries counters, and learning rates that are part of the state, on."""
        for held, kept in self._kept:
            self._step.add_pair(held, kept, "slot")
        for count, value in self.iterations.items():
            self._step.add_pair(value, self._following[count], "counter")

    def of(self, group: UpdateRate) -> tuple[Expr, Expr]:
        """A group's learning rate and the number of this update."""
        own, first = group.learning_rate, self._first
        if own != first and first == 0:
            raise InvalidInputError(
                "learning rates of groups require a first one that is not zero, to which the others are in proportion, "
                f"got 0.0 and {own}"
            )
        rate = self._rate if own == first else self._rate * (own / first)
        count = self._counts[group.steps]
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
        self._kept.append((held, kept))
        return now


def attach(step: TrainingStep, groups: Sequence[Group]) -> dict[str, dict[str, str]]:
    """Adds updates of all weights that have a gradient.

    Returns:
        Weight -> slot -> its state input; `step` is the one that counts its updates.
    """
    members = _members(step, groups)
    b = step.builder("optimizer")
    wanted = [UpdateRate(group.optimizer.learning_rate, group.schedule, group.steps) for group in groups]
    rates = _Rates(step, b, wanted)
    updates = []
    places: dict[str, dict[str, str]] = {}
    for group, rate, pairs in zip(groups, wanted, members, strict=True):
        if not pairs:
            continue
        scalars = rates.of(rate)
        rule = _moved(group, scalars[1] - 1)
        for pair in pairs:
            weight = b.wrap(step.inputs[pair.input])
            wide = working_dtype(weight.dtype)
            given = group.slots.get(pair.input, {})
            slots = {slot: _slot_input(step, pair.input, slot, given, wide) for slot in group.optimizer.slots}
            exprs = {slot.name: b.wrap(value) for slot, value in slots.items()}
            gradient = b.wrap(step.gradients[pair.input])
            new, new_slots = rule.update(weight.cast(wide), gradient.cast(wide), exprs, *scalars)
            updates.append((pair, new.cast(weight.dtype), slots, new_slots))
            counted = {"step": rates.iterations[group.steps]}
            places[pair.input] = {slot: str(value.name) for slot, value in counted.items()}
            places[pair.input] |= {slot.name: str(value.name) for slot, value in slots.items()}
    for pair, new, slots, new_slots in updates:
        step.complete_pair(pair, new)
        for slot, value in slots.items():
            variable = f"{pair.variable}/{slot.name}" if pair.variable else None
            step.add_pair(value, new_slots[slot.name], "slot", variable=variable)
    rates.close()
    recipe.add(step.model, updates=[_recorded(*each) for each in zip(groups, members, strict=True) if each[1]])
    return places


def _recorded(group: Group, pairs: Sequence[StatePair]) -> recipe.Updates:
    schedule = None if group.schedule is None else recipe.choice_of(group.schedule)
    return recipe.Updates(recipe.choice_of(group.optimizer), schedule, [pair.input for pair in pairs])


def attach_model(step: TrainingStep, update: UpdateModel) -> dict[str, str]:
    """Adds the updates that a model makes.

    Args:
        step: whose opset is the model's.
        update: the model.

    Returns:
        Name of what the model keeps -> its state input.
    """
    b = step.builder("optimizer")
    rates = _Rates(step, b, update.rates)
    pairs = {pair.input: pair for pair in step.state.pairs}
    held = {name: step.add_input(name, array) for name, array in update.state.items()}
    operands = [
        *(rates.of(rate)[0].value for rate in update.rates),
        *(step.inputs[name] for name in update.weights),
        *(step.gradients[name] for name in update.weights),
        *held.values(),
    ]
    results = _copied(b, update.model.graph, operands)
    count = len(update.weights)
    for name, new in zip(update.weights, results[:count], strict=True):
        step.complete_pair(pairs[name], new)
    for (name, value), new in zip(held.items(), results[count:], strict=True):
        step.add_pair(value, new, "counter" if name in update.counters else "slot")
    rates.close()
    return {name: str(value.name) for name, value in held.items()}


def _copied(b: Builder, graph: ir.Graph, operands: Sequence[ir.Value]) -> list[Expr]:
    """What a graph makes of values, its nodes and constants copied."""
    values = {}
    for constant in graph.initializers.values():
        assert constant.const_value is not None
        values[constant] = b.op(std.Constant, value=ir.AttrTensor("value", constant.const_value)).value
    values.update(zip(graph.inputs, operands, strict=True))
    copier = Copier(values, captures=True, name=b.names.another)
    b.place(*copier.nodes(graph))
    return [b.wrap(copier.values.get(result) or result) for result in graph.outputs]


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


def _slot_input(
    step: TrainingStep, weight: str, slot: OptimizerSlot, given: Mapping[str, Array], dtype: ir.DataType
) -> ir.Value:
    """The input of what an optimizer keeps of a weight, with its first value."""
    hint = f"{weight.removesuffix(':0')}/{slot.name}"
    if slot.name in given or slot.scalar:
        return step.add_input(hint, np.asarray(given.get(slot.name, slot.initial), dtype.numpy()))
    return step.add_input_like(hint, step.inputs[weight], dtype, slot.initial)
