"""PyTorch's schedulers as formulas of the number of updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
from torch import Tensor
from torch.optim import lr_scheduler, swa_utils

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.passes.training import schedules
from lstm_lower.passes.training.schedules import ChainedScheduler, Link, MovesMomentum, Schedule
from lstm_lower.runtime.proof.reference import evaluate
from lstm_lower.torch.scheduler_runs import tables_of

# Scheduler -> ours and its options, which both have by the same names.
_SCHEDULES: dict[type[Any], tuple[type[Any], tuple[str, ...]]] = {
    lr_scheduler.StepLR: (schedules.StepLR, ("step_size", "gamma")),
    lr_scheduler.ExponentialLR: (schedules.ExponentialLR, ("gamma",)),
    lr_scheduler.ConstantLR: (schedules.ConstantLR, ("factor", "total_iters")),
    lr_scheduler.LinearLR: (schedules.LinearLR, ("start_factor", "end_factor", "total_iters")),
    lr_scheduler.PolynomialLR: (schedules.PolynomialLR, ("total_iters", "power")),
    lr_scheduler.CosineAnnealingLR: (schedules.CosineAnnealingLR, ("T_max", "eta_min")),
    lr_scheduler.CosineAnnealingWarmRestarts: (schedules.CosineAnnealingWarmRestarts, ("T_0", "eta_min", "T_mult")),
}
_FURTHER = (
    lr_scheduler.ChainedScheduler,
    lr_scheduler.CyclicLR,
    lr_scheduler.MultiStepLR,
    lr_scheduler.OneCycleLR,
    lr_scheduler.SequentialLR,
    swa_utils.SWALR,
)


def _scheduled() -> list[str]:
    return sorted(kind.__name__ for kind in (*_SCHEDULES, *_FURTHER))


def number_of(value: Any) -> Any:
    """A number of what may be a tensor."""
    if isinstance(value, (tuple, list)):
        return tuple(number_of(part) for part in value)
    return value.item() if isinstance(value, Tensor) else value


def schedules_of(
    scheduler: lr_scheduler.LRScheduler, steps: Sequence[int], until: int | None
) -> Sequence[Schedule | ChainedScheduler]:
    """The formulas of a scheduler for each group of its optimizer, or tables where one has none.

    Args:
        scheduler: the scheduler.
        steps: number of updates that were done, by group.
        until: number of updates in all for a table; `None` for none.

    Raises:
        InvalidInputError: it does not stand where its formula says, or `until` does not fit.
        UnsupportedOpError: it has neither.
    """
    try:
        return [_formula_of(scheduler, done, number) for number, done in enumerate(steps)]
    except UnsupportedOpError:
        if until is None or isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            raise
    for done in steps:
        _check_count(updates_of(scheduler), done)
    return tables_of(scheduler, steps[0], until)


def _formula_of(scheduler: lr_scheduler.LRScheduler, steps: int, group: int) -> Schedule | ChainedScheduler:
    schedule = _unchecked(scheduler, steps, group)
    options = scheduler.optimizer.param_groups[group]
    if not isinstance(schedule, ChainedScheduler):
        first = number_of(options["initial_lr"])
        _check("learning rate", number_of(options["lr"]), steps, lambda count: schedule.rate(count.like(first), count))
    if isinstance(schedule, MovesMomentum) and schedule.momentums is not None:
        present = options["betas"][0] if "betas" in options else options["momentum"]
        _check("momentum", number_of(present), steps, schedule.momentum)
    return schedule


def _unchecked(scheduler: lr_scheduler.LRScheduler, steps: int, group: int) -> Schedule | ChainedScheduler:
    if type(scheduler) is lr_scheduler.ChainedScheduler:
        parts = [_checked_count(part, steps, group) for part in scheduler._schedulers]
        unlinked = [part for part in parts if not isinstance(part, Link)]
        if unlinked:
            raise UnsupportedOpError(
                "a ChainedScheduler requires parts that change the rate before them, got "
                f"{type(unlinked[0]).__name__}; {_way_on(scheduler)}"
            )
        options = scheduler.optimizer.param_groups[group]
        first, present = (number_of(options[name]) for name in ("initial_lr", "lr"))
        return ChainedScheduler([part for part in parts if isinstance(part, Link)], present / first if first else 1.0)
    return _checked_count(scheduler, steps, group)


def updates_of(scheduler: Any) -> int:
    """How many updates a scheduler has been told of."""
    while type(scheduler) is lr_scheduler.ChainedScheduler:
        scheduler = next(iter(scheduler._schedulers))
    told: int = scheduler.last_epoch
    return told


def _checked_count(scheduler: lr_scheduler.LRScheduler, steps: int, group: int) -> Schedule:
    _check_count(scheduler.last_epoch, steps)
    return _formula(scheduler, group)


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
    kind = type(scheduler)
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
        swa_lr = scheduler.optimizer.param_groups[group]["swa_lr"]
        return schedules.SWALR(number_of(swa_lr), scheduler.anneal_epochs, scheduler._anneal_strategy)
    if kind is lr_scheduler.OneCycleLR:
        return _one_cycle(scheduler, scheduler.optimizer.param_groups[group])
    if kind is lr_scheduler.CyclicLR and scheduler._scale_fn_custom is None:
        return _cyclic(scheduler, group)
    if kind not in _SCHEDULES:
        what = "CyclicLR with a scale_fn" if kind is lr_scheduler.CyclicLR else kind.__name__
        raise UnsupportedOpError(
            f"a scheduler requires a formula of the number of updates, as {_scheduled()} have, got {what}; "
            f"{_way_on(scheduler)}"
        )
    ours, options = _SCHEDULES[kind]
    schedule: Schedule = ours(**{name: getattr(scheduler, name) for name in options})
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
