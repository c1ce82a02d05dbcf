"""PyTorch's optimizers and schedulers as ours, with their groups and what they keep."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor
from torch.optim import lr_scheduler

from lstm_lower.errors import InvalidInputError, UnsupportedOpError, some
from lstm_lower.graph.emit import Emitter, Workspace
from lstm_lower.graph.expressions import Builder
from lstm_lower.passes.training import schedules, torch_optimizers
from lstm_lower.passes.training.optimizers import Optimizer
from lstm_lower.passes.training.schedules import Schedule
from lstm_lower.passes.training.updates import Group
from lstm_lower.records.state import Array
from lstm_lower.runtime.proof.reference import evaluate

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
    lr_scheduler.CosineAnnealingWarmRestarts: (schedules.CosineAnnealingWarmRestarts, ("T_0", "eta_min", "T_mult")),
}


def _scheduled() -> list[str]:
    return sorted(kind.__name__ for kind in (*_SCHEDULES, lr_scheduler.MultiStepLR, lr_scheduler.SequentialLR))


def is_torch(optimizer: object) -> bool:
    """Whether it is one of PyTorch's optimizers or schedulers."""
    return isinstance(optimizer, (torch.optim.Optimizer, lr_scheduler.LRScheduler))


def check(optimizer: object) -> None:
    """Refuses a class, which `torch.optim` has beside the objects, and kinds without a formula.

    Raises:
        InvalidInputError: it is a class.
        UnsupportedOpError: it is of a kind without a formula.
    """
    if isinstance(optimizer, type):
        raise InvalidInputError(
            f"optimizer requires an object, got the class {optimizer.__name__}; make one of it: "
            f"{optimizer.__name__}(module.parameters(), ...)"
        )
    if is_torch(optimizer):
        _kind(getattr(optimizer, "optimizer", optimizer))


def _kind(optimizer: object) -> type[Any]:
    """Ours of the same name."""
    kind = _KINDS.get(type(optimizer))
    if kind is None:
        raise UnsupportedOpError(
            f"optimizer requires one of {sorted(known.__name__ for known in _KINDS)}, got {type(optimizer).__name__}; "
            "what='gradients' makes a step for an optimizer that you write yourself"
        )
    return kind


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
    kind = _kind(optimizer)
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
        steps = _steps(rule, kept, scheduler)
        schedule = None if scheduler is None else _schedule(scheduler, steps)
        if schedule is not None:
            _check_rate(schedule, rule.learning_rate, steps, _number(options["lr"]))
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


def _steps(rule: Optimizer, kept: Mapping[str, Mapping[str, Any]], scheduler: lr_scheduler.LRScheduler | None) -> int:
    """The number of updates done, which all weights of a group must share."""
    counts = set()
    told = getattr(scheduler, "last_epoch", 0)
    for values in kept.values():
        # Momentum is kept without a count; that it is kept says that there was an update, and a scheduler knows how
        # many there were.
        held = any(isinstance(value, Tensor) and value.dim() for value in values.values())
        counted = max(int(held), told) if held or not rule.slots else 0
        counts.add(int(values.get("step", counted)))
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
    if getattr(scheduler, "last_epoch", steps) != steps:
        raise InvalidInputError(
            f"a scheduler requires to have been stepped as often as its optimizer, {steps} times, got "
            f"{scheduler.last_epoch}; one that steps once an epoch is stepped beside the trainer: "
            "trainer.learning_rate = scheduler.get_last_lr()[0]"
        )
    return _formula(scheduler)


def _check_rate(schedule: Schedule, first: float, steps: int, present: float) -> None:
    """Whether a scheduler stands where its formula says: it may have been set, or the optimizer's rate by hand."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 18})
    model = ir.Model(graph, ir_version=10)
    b = Builder(Emitter(Workspace.of(model), graph, scope="rate"))
    rate = schedule.rate(b.constant(first, ir.DataType.DOUBLE), b.constant(float(steps), ir.DataType.DOUBLE))
    graph.outputs.append(rate.value)
    (expected,) = (float(value) for value in evaluate(model, {}).values())
    if not math.isclose(expected, present, rel_tol=1e-6, abs_tol=1e-12 * abs(first)):
        raise InvalidInputError(
            f"a scheduler requires the learning rate that follows from its options after {steps} updates, "
            f"{expected:g}, got {present:g} in optimizer.param_groups; give the optimizer alone and set "
            "trainer.learning_rate = scheduler.get_last_lr()[0] after each scheduler.step()"
        )


def _formula(scheduler: lr_scheduler.LRScheduler) -> Schedule:
    if type(scheduler) is lr_scheduler.SequentialLR:
        return schedules.SequentialLR([_formula(part) for part in scheduler._schedulers], scheduler._milestones)
    if type(scheduler) is lr_scheduler.MultiStepLR:
        return schedules.MultiStepLR(sorted(scheduler.milestones.elements()), scheduler.gamma)
    if type(scheduler) not in _SCHEDULES:
        way = " of one with cycle_momentum=False" if getattr(scheduler, "cycle_momentum", False) else ""
        raise UnsupportedOpError(
            f"a scheduler requires a formula of the number of updates, as {_scheduled()} "
            f"have, got {type(scheduler).__name__}; give the optimizer alone and set trainer.learning_rate = "
            f"scheduler.get_last_lr()[0] after each scheduler.step(){way}"
        )
    kind, options = _SCHEDULES[type(scheduler)]
    schedule: Schedule = kind(**{name: getattr(scheduler, name) for name in options})
    return schedule
