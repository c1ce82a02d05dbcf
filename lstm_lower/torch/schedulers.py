"""PyTorch's schedulers as formulas of the number of updates, or as tables of what they themselves set, run ahead."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
from torch import Tensor
from torch.optim import lr_scheduler, swa_utils

from lstm_lower.errors import InvalidInputError, UnsupportedOpError, first_line
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.passes.training import schedules
from lstm_lower.passes.training.schedules import ChainedScheduler, Link, MovesMomentum, RateTable, Schedule
from lstm_lower.replacement import contents_kept
from lstm_lower.runtime.proof.reference import evaluate

# Schedulers whose options bear the names of ours.
_NAMES = ("StepLR", "ExponentialLR", "ConstantLR", "LinearLR", "PolynomialLR", "CosineAnnealingLR")
_ALIKE: dict[type[Any], type[Any]] = {
    getattr(lr_scheduler, name): getattr(schedules, name) for name in (*_NAMES, "CosineAnnealingWarmRestarts")
}
_FURTHER = ("ChainedScheduler", "CyclicLR", "MultiStepLR", "OneCycleLR", "SequentialLR", "SWALR")


def number_of(value: Any) -> Any:
    """A number of what may be a tensor."""
    if isinstance(value, (tuple, list)):
        return tuple(number_of(part) for part in value)
    return value.item() if isinstance(value, Tensor) else value


def schedules_of(
    scheduler: lr_scheduler.LRScheduler | None, steps: Sequence[int], until: int | None
) -> Sequence[Schedule | ChainedScheduler | None]:
    """The formulas of a scheduler for each group of its optimizer, or tables where one has none.

    Args:
        scheduler: the scheduler, if there is one.
        steps: number of updates that were done, by group.
        until: number of updates in all for a table; `None` for none.

    Raises:
        InvalidInputError: it does not stand where its formula says, or `until` does not fit.
        UnsupportedOpError: it has neither.
    """
    if scheduler is None:
        return [None] * len(steps)
    try:
        return [_formula_of(scheduler, done, number) for number, done in enumerate(steps)]
    except UnsupportedOpError:
        if until is None or isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            raise
    for done in steps:
        _check_count(updates_of(scheduler), done)
    return tables_of(scheduler, steps[0], until)


def _formula_of(scheduler: Any, steps: int, group: int) -> Schedule | ChainedScheduler:
    chained = type(scheduler) is lr_scheduler.ChainedScheduler
    for part in scheduler._schedulers if chained else [scheduler]:
        _check_count(updates_of(part), steps)
    options = scheduler.optimizer.param_groups[group]
    schedule = _chain(scheduler, group, options) if chained else _formula(scheduler, group)
    if not isinstance(schedule, ChainedScheduler):
        first = number_of(options["initial_lr"])
        _check("learning rate", number_of(options["lr"]), steps, lambda count: schedule.rate(count.like(first), count))
    if isinstance(schedule, MovesMomentum) and schedule.momentums is not None:
        present = options["betas"][0] if "betas" in options else options["momentum"]
        _check("momentum", number_of(present), steps, schedule.momentum)
    return schedule


def _chain(scheduler: Any, group: int, options: Mapping[str, Any]) -> ChainedScheduler:
    parts = [_formula(part, group) for part in scheduler._schedulers]
    unlinked = [part for part in parts if not isinstance(part, Link)]
    if unlinked:
        raise UnsupportedOpError(
            "a ChainedScheduler requires parts that change the rate before them, got "
            f"{type(unlinked[0]).__name__}; {_way_on(scheduler)}"
        )
    first, present = (number_of(options[name]) for name in ("initial_lr", "lr"))
    return ChainedScheduler([part for part in parts if isinstance(part, Link)], present / first if first else 1.0)


def updates_of(scheduler: Any) -> int:
    """How many updates a scheduler has been told of; 0 for none."""
    while type(scheduler) is lr_scheduler.ChainedScheduler:
        scheduler = next(iter(scheduler._schedulers))
    told: int = 0 if scheduler is None else scheduler.last_epoch
    return told


def _check_count(told: int, steps: int) -> None:
    if told != steps:
        raise InvalidInputError(
            f"a scheduler must have been stepped as often as its optimizer, {steps} times, got "
            f"{told}; one that steps once an epoch goes with the optimizer alone and a callback of trainer.fit: "
            "lstm_lower.runtime.training.callbacks.EpochSchedule(scheduler)"
        )


def _check(what: str, present: float, steps: int, formula: Callable[[Expr], Expr]) -> None:
    """Whether a scheduler stands where its formula says: it may have been set, or the optimizer's options by hand."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 18})
    model = ir.Model(graph, ir_version=10)
    b = Builder(Workspace.of(model), graph, scope="rate")
    graph.outputs.append(formula(b.constant(float(steps), ir.DataType.DOUBLE)).value)
    (expected,) = (float(value) for value in evaluate(model, {}).values())
    if not math.isclose(expected, present, rel_tol=1e-6, abs_tol=1e-12):
        raise InvalidInputError(
            f"a scheduler requires the {what} that follows from its options after {steps} updates, "
            f"{expected:g}, got {present:g} in optimizer.param_groups; {_way_on()}"
        )


def _way_on(scheduler: Any = None) -> str:
    way = " of one with cycle_momentum=False" if getattr(scheduler, "cycle_momentum", False) else ""
    plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
    groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", ())
    several = "; the rates of further groups keep their ratio to the first one's" if len(groups) > 1 else ""
    table = "" if scheduler is None or plateau else "schedule_steps=N puts its rates for N updates into a table; or "
    return (
        f"{table}give the optimizer alone and set trainer.learning_rate = scheduler.get_last_lr()[0] after each "
        f"scheduler.step({'metric' if plateau else ''}){way}{several}"
    )


def _formula(scheduler: Any, group: int) -> Schedule:
    """A scheduler's formula for a group of its optimizer."""
    kind, options = type(scheduler), scheduler.optimizer.param_groups[group]
    if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
        raise UnsupportedOpError(
            f"a scheduler must go by the number of updates, got {kind.__name__}, which goes by a metric that no "
            f"step computes, most often once an epoch; {_way_on(scheduler)}. trainer.fit takes "
            "callbacks=[lstm_lower.runtime.training.callbacks.EpochSchedule(scheduler)]"
        )
    if kind is lr_scheduler.SequentialLR:
        parts = [_formula(part, group) for part in scheduler._schedulers]
        for part, formula in zip(scheduler._schedulers, parts, strict=True):
            moving = isinstance(formula, MovesMomentum) and formula.momentums is not None
            if moving or isinstance(formula, schedules.SWALR):
                raise UnsupportedOpError(
                    "a SequentialLR requires parts that go by their own number of updates and leave the momentum, got "
                    f"{type(part).__name__}{' with cycle_momentum' if moving else ''}; {_way_on(part)}"
                )
        return schedules.SequentialLR(parts, scheduler._milestones)
    if kind is lr_scheduler.MultiStepLR:
        return schedules.MultiStepLR(sorted(scheduler.milestones.elements()), scheduler.gamma)
    if kind is swa_utils.SWALR:
        return schedules.SWALR(number_of(options["swa_lr"]), scheduler.anneal_epochs, scheduler._anneal_strategy)
    if kind is lr_scheduler.OneCycleLR:
        return _one_cycle(scheduler, options)
    if kind is lr_scheduler.CyclicLR and scheduler._scale_fn_custom is None:
        return _cyclic(scheduler, group)
    if kind not in _ALIKE:
        what = "CyclicLR with a scale_fn" if kind is lr_scheduler.CyclicLR else kind.__name__
        raise UnsupportedOpError(
            "a scheduler requires a formula of the number of updates, as "
            f"{sorted([*(each.__name__ for each in _ALIKE), *_FURTHER])} have, got {what}; {_way_on(scheduler)}"
        )
    ours = _ALIKE[kind]
    schedule: Schedule = ours(*(getattr(scheduler, field.name) for field in dataclasses.fields(ours)))
    return schedule


def _one_cycle(scheduler: Any, options: Mapping[str, Any]) -> Schedule:
    first, largest, last = (number_of(options[name]) for name in ("initial_lr", "max_lr", "min_lr"))
    return schedules.OneCycleLR(
        [phase["end_step"] for phase in scheduler._schedule_phases],
        scheduler.total_steps,
        largest / first,
        last / first,
        scheduler._anneal_func_type,
        _momentums(options) if scheduler.cycle_momentum else None,
    )


def _cyclic(scheduler: Any, group: int) -> Schedule:
    options = scheduler.optimizer.param_groups[group]
    base, first = number_of(scheduler.base_lrs[group]), number_of(options["initial_lr"])
    up = scheduler.step_ratio * scheduler.total_size
    return schedules.CyclicLR(
        number_of(scheduler.max_lrs[group]),
        up,
        scheduler.total_size - up,
        scheduler.mode,
        scheduler.gamma,
        None if base == first else base,
        _momentums(options) if scheduler.cycle_momentum else None,
    )


def _momentums(options: Mapping[str, Any]) -> tuple[float, float]:
    found = number_of(options["base_momentum"]), number_of(options["max_momentum"])
    if min(found) == 0:
        raise UnsupportedOpError(
            "cycle_momentum requires momentums other than zero, of which PyTorch keeps none, got base_momentum "
            f"{found[0]:g} and max_momentum {found[1]:g}; base_momentum=1e-8 does nearly the same"
        )
    return found


# What a table may move: the rate, and by either name the momentum.
_MOVING = ("lr", "momentum", "betas")
# Options of a group: name -> value.
Options = dict[str, Any]


def tables_of(scheduler: lr_scheduler.LRScheduler, done: int, until: int) -> list[RateTable]:
    """The learning rates of each group of a scheduler's optimizer, in a table.

    Args:
        scheduler: any that is stepped without an argument. It runs ahead twice, and is put back.
        done: number of updates that were done.
        until: number of updates in all.

    Raises:
        InvalidInputError: no update is left; the scheduler fails, or its rates are not numbers.
        UnsupportedOpError: it changes more than rates and momentum, or does not do the same twice.
    """
    if until <= done:
        raise InvalidInputError(f"schedule_steps requires more updates than were done, {done}, got {until}")
    kind = type(scheduler).__name__
    runs = _ahead(scheduler, until - done)
    tables = [_table(kind, [groups[number] for groups in runs], done) for number in range(len(runs[0]))]
    if runs != _ahead(scheduler, until - done):
        raise UnsupportedOpError(
            f"schedule_steps requires a {kind} whose functions depend on the number of updates alone, got other rates "
            "in a second run; make them functions of their argument"
        )
    return tables


def _table(kind: str, run: list[Options], done: int) -> RateTable:
    first = run[0]
    for place, options in enumerate(run):
        changed = [name for name in first if name not in _MOVING and options[name] != first[name]]
        if "betas" in first and options["betas"][1:] != first["betas"][1:]:
            changed.append("betas[1]")
        if changed:
            raise UnsupportedOpError(
                f"schedule_steps requires a {kind} that changes learning rates and momentum alone, got one that "
                f"changes {changed[0]} after {done + place} updates; what='gradients' makes a step for an optimizer "
                "that you write yourself"
            )
        if not math.isfinite(options["lr"]):
            raise InvalidInputError(
                f"schedule_steps requires a {kind} whose learning rates are finite, got {options['lr']} after "
                f"{done + place} updates; a smaller schedule_steps ends before"
            )
    initial = first["initial_lr"]
    if initial == 0 and any(options["lr"] for options in run):
        raise InvalidInputError(
            f"schedule_steps requires rates in proportion to a first one, got 0 as the first of a {kind}; a small one "
            "does nearly the same"
        )
    momentums = tuple(options["betas"][0] if "betas" in options else options.get("momentum", 0.0) for options in run)
    moves = len(set(momentums)) > 1
    if moves and min(momentums) == 0:
        raise UnsupportedOpError(
            f"schedule_steps requires a {kind} with momentums other than zero, of which PyTorch keeps none, got 0; "
            "1e-8 does nearly the same"
        )
    factors = tuple(options["lr"] / initial if initial else 0.0 for options in run)
    return RateTable(factors, done, momentums if moves else ())


def _ahead(scheduler: lr_scheduler.LRScheduler, updates: int) -> list[list[Options]]:
    """The options of each group in each of the updates to come."""
    groups = scheduler.optimizer.param_groups
    names = [*scheduler.optimizer.defaults, "initial_lr"]
    found = []
    # No optimizer is stepped between.
    with _put_back(scheduler), warnings.catch_warnings(action="ignore"):
        for update in range(updates):
            if update:
                try:
                    scheduler.step()
                except Exception as error:
                    raise InvalidInputError(
                        f"schedule_steps requires a scheduler that can be stepped as often, got {first_line(error)} of "
                        f"a {type(scheduler).__name__} at its step {update}; a smaller schedule_steps ends before"
                    ) from error
            found.append([{name: number_of(group[name]) for name in names if name in group} for group in groups])
    return found


@contextlib.contextmanager
def _put_back(scheduler: lr_scheduler.LRScheduler) -> Iterator[None]:
    """Lets a scheduler run on copies of what it and its parts hold, and puts its optimizer's options back.

    The scheduler and the optimizer stay the objects that they are, as functions may look at them.
    """
    parts = _parts(scheduler)
    groups = scheduler.optimizer.param_groups
    tensors = [(value, value.clone()) for group in groups for value in group.values() if isinstance(value, Tensor)]
    held = [vars(part) for part in parts]
    try:
        copies = copy.deepcopy(held, {id(each): each for each in (scheduler.optimizer, *parts)})
    except Exception as error:
        raise InvalidInputError(
            f"schedule_steps requires a scheduler that copy.deepcopy can copy, got {first_line(error)} of a "
            f"{type(scheduler).__name__}"
        ) from error
    try:
        with contents_kept(*held, *groups):
            for own, copied in zip(held, copies, strict=True):
                own.update(copied)
            yield
    finally:
        for value, before in tensors:
            value.detach().copy_(before)


def _parts(scheduler: lr_scheduler.LRScheduler) -> list[lr_scheduler.LRScheduler]:
    """A scheduler and those that it holds, each once."""
    found: list[lr_scheduler.LRScheduler] = []
    waiting = [scheduler]
    while waiting:
        part = waiting.pop()
        if any(part is known for known in found):
            continue
        found.append(part)
        for value in vars(part).values():
            held = value if isinstance(value, (list, tuple)) else [value]
            waiting += [each for each in held if isinstance(each, lr_scheduler.LRScheduler)]
    return found
