"""PyTorch's optimizers and schedulers as ours, with their groups and what they keep."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import onnx_ir as ir
import torch
from torch.optim import lr_scheduler

from lstm_lower.errors import InvalidInputError, warn
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.training import torch_optimizers, updates
from lstm_lower.passes.training.optimizers import Optimizer, resolve
from lstm_lower.passes.training.step import TrainingStep
from lstm_lower.passes.training.updates import Group, UpdateRate
from lstm_lower.records import optimizer_state
from lstm_lower.records import state as training_state
from lstm_lower.records.optimizer_state import Kept
from lstm_lower.records.state import Array
from lstm_lower.torch import schedulers
from lstm_lower.torch.interface import brief, numbers
from lstm_lower.torch.modes import Watching
from lstm_lower.torch.schedulers import number_of
from lstm_lower.torch.traced_optimizers import on_copies, update_model

_KINDS: dict[type[Any], type[Any]] = {
    getattr(torch.optim, name): getattr(torch_optimizers, name)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop")
}

# Updates for which a table of learning rates may be made: 80 MB.
_MOST = 10_000_000


def is_torch(optimizer: object) -> bool:
    """Whether it is one of PyTorch's optimizers or schedulers."""
    return isinstance(optimizer, (torch.optim.Optimizer, lr_scheduler.LRScheduler))


def configured(given: Any) -> Any:
    """The optimizer, or the scheduler that is stepped with it, of what frameworks hand over or put around them.

    Dictionaries, and lists of optimizers and of schedulers, as Lightning's `configure_optimizers` returns them, and
    wrappers that hold theirs as `optimizer` or `scheduler`, as Accelerate's. A scheduler that is stepped once an epoch
    is left out with a warning. Names mean PyTorch's formulas and defaults.

    Raises:
        InvalidInputError: a name is not known.
    """
    if isinstance(given, str):
        return resolve(given, torch_optimizers.BY_NAME)
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(x, list) and len(x) == 1 for x in given):
        given = {"optimizer": given[0][0], "lr_scheduler": given[1][0]}
    if isinstance(given, Mapping) and "optimizer" in given:
        schedule = given.get("lr_scheduler")
        options = schedule if isinstance(schedule, Mapping) else {"scheduler": schedule}
        if schedule is not None and options.get("interval", "epoch") == "step" and options.get("frequency", 1) == 1:
            return configured(options["scheduler"])
        if schedule is not None:
            warn(
                "a scheduler that is stepped once an epoch is no part of a step: give it to trainer.fit, "
                "callbacks=[lstm_lower.runtime.training.callbacks.EpochSchedule(scheduler)]"
            )
        return configured(given["optimizer"])
    inner = getattr(given, "optimizer", None)
    if isinstance(given, torch.optim.Optimizer) and isinstance(inner, torch.optim.Optimizer):
        return configured(inner)
    if not is_torch(given) and isinstance(inner := getattr(given, "scheduler", None), lr_scheduler.LRScheduler):
        return inner
    return given


def check(optimizer: object, schedule_steps: object) -> None:
    """Refuses a class, which `torch.optim` has beside the objects, and what is no optimizer.

    Raises:
        InvalidInputError: it is one of these; or a number of steps is none, or stands beside what is no scheduler.
    """
    if isinstance(optimizer, type):
        raise InvalidInputError(
            f"optimizer requires an object, got the class {optimizer.__name__}; make one of it: "
            f"{optimizer.__name__}(module.parameters(), ...)"
        )
    if schedule_steps is not None:
        if not isinstance(optimizer, lr_scheduler.LRScheduler):
            raise InvalidInputError(
                f"schedule_steps requires a scheduler of torch.optim as optimizer, got {type(optimizer).__name__}"
            )
        number = isinstance(schedule_steps, Integral) and not isinstance(schedule_steps, bool)
        if not number or not 1 <= schedule_steps <= _MOST:  # type: ignore[operator]
            raise InvalidInputError(
                f"schedule_steps requires a number of updates from 1 to {_MOST:,}, got {schedule_steps!r}"
            )
    if is_torch(optimizer):
        return
    held = optimizer if isinstance(optimizer, (tuple, list)) else []
    ours = optimizer is None or isinstance(optimizer, Optimizer) or any(isinstance(x, Group) for x in held)
    if not ours:
        scheduled = any(isinstance(x, lr_scheduler.LRScheduler) for x in held)
        way = "; a scheduler alone brings its optimizer" if scheduled else "; one alone, not in a list" if held else ""
        raise InvalidInputError(
            f"optimizer requires one of torch.optim, a scheduler of one, a name such as 'adam' or "
            f"None, got {brief(optimizer)}{way}"
        )


def attach(optimizer: Any, model: ir.Model, names: Mapping[int, str], schedule_steps: int | None = None) -> None:
    """Adds the updates of an optimizer, or of the one that a scheduler belongs to: by our formulas, or as it is traced.

    Args:
        optimizer: either.
        model: the step, which ends at its gradients.
        names: identity of a parameter that has a gradient -> its name; others are left out, as PyTorch does.
        schedule_steps: for how many updates a scheduler without a formula has a table.

    Raises:
        InvalidInputError: it does not fit.
        UnsupportedOpError: it can be traced no more than it has a formula, or its scheduler has none.
    """
    scheduler, optimizer = apart(optimizer)
    if type(optimizer) in _KINDS:
        step = TrainingStep(model, training_state.of(model))
        places = updates.attach(step, groups_of(scheduler or optimizer, names, schedule_steps))
        kept = [Kept(x, (key,), weight) for weight, slots in places.items() for key, x in slots.items()]
    else:
        done = schedulers.updates_of(scheduler)
        schedules = schedulers.schedules_of(scheduler, [done for _ in optimizer.param_groups], schedule_steps)
        rates = [
            UpdateRate(number_of(_first_rate(options, scheduler)), schedule, done)
            for options, schedule in zip(optimizer.param_groups, schedules, strict=True)
        ]
        parameters = [x for options in optimizer.param_groups for x in options["params"]]
        update, paths = update_model(optimizer, [names.get(id(x), "") for x in parameters], rates)
        both = max(each.graph.opset_imports.get("", 0) for each in (model, update.model))
        for each in (model, update.model):
            ConvertOpsetPass(at_least=both)(each)
        step = TrainingStep(model, training_state.of(model))
        inputs = updates.attach_model(step, update)
        kept = [
            Kept(inputs[name], tuple(keys), None if side else update.weights[place], place if side else 0)
            for name, (side, place, *keys) in paths.items()
        ]
    step.save()
    optimizer_state.write(model, kept)


def _first_rate(options: Mapping[str, Any], scheduler: lr_scheduler.LRScheduler | None) -> Any:
    return options["lr"] if scheduler is None else options.get("initial_lr", options["lr"])


def apart(optimizer: Any) -> tuple[lr_scheduler.LRScheduler | None, torch.optim.Optimizer]:
    """A scheduler, if it is one, and the optimizer."""
    return (optimizer, optimizer.optimizer) if isinstance(optimizer, lr_scheduler.LRScheduler) else (None, optimizer)


def groups_of(optimizer: Any, names: Mapping[int, str], schedule_steps: int | None = None) -> list[Group]:
    """The groups of an optimizer for which there are formulas, or of the one that a scheduler belongs to.

    Args:
        optimizer: either.
        names: see `attach`.
        schedule_steps: see there.

    Raises:
        InvalidInputError: it does not fit.
        UnsupportedOpError: its scheduler has no formula.
    """
    scheduler, optimizer = apart(optimizer)
    groups = []
    for options in optimizer.param_groups:
        chosen = {names[id(parameter)]: parameter for parameter in options["params"] if id(parameter) in names}
        kept = {name: optimizer.state.get(parameter, {}) for name, parameter in chosen.items()}
        rule = _rule(_KINDS[type(optimizer)], options, scheduler)
        steps = _steps(rule, kept, scheduler)
        groups.append(Group(rule, list(chosen), None, _slots(rule, kept), steps))
    schedules = schedulers.schedules_of(scheduler, [group.steps for group in groups], schedule_steps)
    return [dataclasses.replace(group, schedule=schedule) for group, schedule in zip(groups, schedules, strict=True)]


def is_by_weight(optimizer: Any) -> bool:
    """Whether what an optimizer, or that of a scheduler, makes of a weight is known to depend on no other one."""
    return type(apart(optimizer)[1]) in _KINDS


def stepped(optimizer: Any, copies: Mapping[int, torch.nn.Parameter]) -> bool:
    """Does one step of an optimizer, or of the one that a scheduler belongs to, on copies of parameters.

    Args:
        optimizer: either; it stays as it is.
        copies: identity of a parameter -> its copy, with a gradient or without. Others are left out.

    Returns:
        Whether it computes something in half precision or bfloat16.
    """
    _, optimizer = apart(optimizer)
    own = on_copies(optimizer, copies)
    held = {id(x): kept for x, kept in optimizer.state.items()}
    own.state |= {x: copy.deepcopy(held.get(key, {})) for key, x in copies.items()}
    seen: set[torch.dtype] = set()
    with Watching(lambda x: seen.add(x.dtype)):
        type(own).step(own)
    return bool(seen & {torch.bfloat16, torch.float16})


def _rule(kind: type[Any], options: Mapping[str, Any], scheduler: lr_scheduler.LRScheduler | None) -> Optimizer:
    fields = {field.name for field in dataclasses.fields(kind)} & set(options)
    chosen = {name: number_of(options[name]) for name in fields}
    rule: Optimizer = kind(learning_rate=number_of(_first_rate(options, scheduler)), **chosen)
    return rule


def _steps(rule: Optimizer, kept: Mapping[str, Mapping[str, Any]], scheduler: lr_scheduler.LRScheduler | None) -> int:
    """The number of updates done, which all weights of a group must share."""
    counts = set()
    told = schedulers.updates_of(scheduler)
    for values in kept.values():
        # Momentum is kept without a count; that it is kept says that there was an update, and a scheduler knows how
        # many there were.
        held = any(values.get(slot.name) is not None for slot in rule.slots)
        counted = max(int(held), told) if held or not rule.slots else 0
        counts.add(int(values.get("step", counted)))
    if len(counts) > 1:
        raise InvalidInputError(
            f"optimizer requires parameters of a group to have had the same number of updates, got {sorted(counts)}; "
            "put them in groups of their own"
        )
    return counts.pop() if counts else told


def _slots(rule: Optimizer, kept: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Array]]:
    """What the optimizer keeps of each weight already."""
    wanted = {slot.name for slot in rule.slots}
    return {
        name: {key: numbers(torch.as_tensor(values[key])) for key in wanted if values.get(key) is not None}
        for name, values in kept.items()
    }
