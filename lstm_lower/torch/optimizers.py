"""PyTorch's optimizers and schedulers as ours, with their groups and what they keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import lr_scheduler

from lstm_lower.errors import InvalidInputError, UnsupportedOpError, some
from lstm_lower.passes.training import schedules, torch_optimizers
from lstm_lower.passes.training.optimizers import Optimizer
from lstm_lower.passes.training.schedules import Schedule
from lstm_lower.passes.training.updates import Group
from lstm_lower.records.state import Array

_KINDS: dict[type[Any], type[Any]] = {
    getattr(torch.optim, name): getattr(torch_optimizers, name)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam")
}

# Scheduler -> ours and its options, which both have by the same names.
_SCHEDULES: dict[type[Any], tuple[type[Any], tuple[str, ...]]] = {
    lr_scheduler.StepLR: (schedules.StepLR, ("step_size", "gamma")),
    lr_scheduler.ExponentialLR: (schedules.ExponentialLR, ("gamma",)),
    lr_scheduler.ConstantLR: (schedules.ConstantLR, ("factor", "total_iters")),
    lr_scheduler.LinearLR: (schedules.LinearLR, ("start_factor", "end_factor", "total_iters")),
    lr_scheduler.PolynomialLR: (schedules.PolynomialLR, ("total_iters", "power")),
    lr_scheduler.CosineAnnealingLR: (schedules.CosineAnnealingLR, ("T_max", "eta_min")),
}


def is_torch(optimizer: object) -> bool:
    """Whether it is one of PyTorch's optimizers or schedulers."""
    return isinstance(optimizer, (torch.optim.Optimizer, lr_scheduler.LRScheduler))


def groups_of(optimizer: Any, names: Mapping[int, str], used: Callable[[str], bool]) -> list[Group]:
    """The groups of an optimizer, or of the one that a scheduler belongs to.

    Args:
        optimizer: either.
        names: identity of a parameter -> its name.
        used: whether a parameter of a name has a gradient; others are left out, as PyTorch does.

    Raises:
        InvalidInputError: it has parameters of another module, or does not fit.
        UnsupportedOpError: it is of a kind without a formula.
    """
    scheduler = optimizer if isinstance(optimizer, lr_scheduler.LRScheduler) else None
    optimizer = optimizer if scheduler is None else scheduler.optimizer
    kind = _KINDS.get(type(optimizer))
    if kind is None:
        raise UnsupportedOpError(
            f"optimizer requires one of {sorted(known.__name__ for known in _KINDS)}, got {type(optimizer).__name__}; "
            "what='gradients' makes a step for an optimizer that you write yourself"
        )
    groups = []
    for options in optimizer.param_groups:
        members = [parameter for parameter in options["params"] if id(parameter) in names]
        if len(members) < len(options["params"]):
            raise InvalidInputError(
                f"optimizer requires parameters of the module, such as {some(list(names.values()))}, got others"
            )
        chosen = {names[id(parameter)]: parameter for parameter in members if used(names[id(parameter)])}
        kept = {name: optimizer.state.get(parameter, {}) for name, parameter in chosen.items()}
        rule = _rule(kind, options, scheduled=scheduler is not None)
        steps = _steps(kept)
        schedule = None if scheduler is None else _schedule(scheduler, steps)
        groups.append(Group(rule, list(chosen), schedule, _slots(rule, kept), steps))
    return groups


def _rule(kind: type[Any], options: Mapping[str, Any], *, scheduled: bool) -> Optimizer:
    fields = {field.name for field in dataclasses.fields(kind)} & set(options)
    rate = options.get("initial_lr", options["lr"]) if scheduled else options["lr"]
    chosen = {name: _number(options[name]) for name in fields}
    rule: Optimizer = kind(learning_rate=_number(rate), **chosen)
    return rule


def _number(value: Any) -> Any:
    """A number of what may be a tensor."""
    if isinstance(value, (tuple, list)):
        return tuple(_number(part) for part in value)
    return value.item() if isinstance(value, Tensor) else value


def _steps(kept: Mapping[str, Mapping[str, Any]]) -> int:
    """The number of updates done, which all weights of a group must share."""
    counts = set()
    for values in kept.values():
        # Momentum is kept without a count; that it is kept says that there was an update.
        held = any(isinstance(value, Tensor) and value.dim() for value in values.values())
        counts.add(int(values["step"]) if "step" in values else int(held))
    if len(counts) > 1:
        raise InvalidInputError(
            f"optimizer requires parameters of a group to have had the same number of updates, got {sorted(counts)}; "
            "put them in groups of their own"
        )
    return counts.pop() if counts else 0


def _slots(rule: Optimizer, kept: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Array]]:
    """What the optimizer keeps of each weight already."""
    wanted = {slot.name for slot in rule.slots}
    found: dict[str, dict[str, Array]] = {}
    for name, values in kept.items():
        held = {key: values[key] for key in wanted if values.get(key) is not None}
        found[name] = {key: np.asarray(torch.as_tensor(value).detach().cpu()) for key, value in held.items()}
    return found


def _schedule(scheduler: lr_scheduler.LRScheduler, steps: int) -> Schedule:
    if scheduler.last_epoch != steps:
        raise InvalidInputError(
            f"a scheduler requires to have been stepped as often as its optimizer, {steps} times, got "
            f"{scheduler.last_epoch}; one that steps once an epoch is stepped beside the trainer: "
            "trainer.learning_rate = scheduler.get_last_lr()[0]"
        )
    if type(scheduler) is lr_scheduler.MultiStepLR:
        return schedules.MultiStepLR(sorted(scheduler.milestones.elements()), scheduler.gamma)
    if type(scheduler) is lr_scheduler.CosineAnnealingWarmRestarts and scheduler.T_mult == 1:
        return schedules.CosineAnnealingWarmRestarts(scheduler.T_0, scheduler.eta_min)
    if type(scheduler) not in _SCHEDULES:
        raise UnsupportedOpError(
            f"a scheduler requires a formula of the number of updates, as {sorted(x.__name__ for x in _SCHEDULES)} "
            f"have, got {type(scheduler).__name__}; give the optimizer alone and set trainer.learning_rate = "
            "scheduler.get_last_lr()[0] after each scheduler.step()"
        )
    kind, options = _SCHEDULES[type(scheduler)]
    schedule: Schedule = kind(**{name: getattr(scheduler, name) for name in options})
    return schedule
