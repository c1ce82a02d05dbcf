"""PyTorch's optimizers and schedulers as ours, with their groups and what they keep."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch.optim import lr_scheduler

from lstm_lower.errors import InvalidInputError, UnsupportedOpError, some
from lstm_lower.passes.training import torch_optimizers
from lstm_lower.passes.training.optimizers import Optimizer
from lstm_lower.passes.training.updates import Group
from lstm_lower.records.state import Array
from lstm_lower.torch import schedulers
from lstm_lower.torch.interface import brief, numbers
from lstm_lower.torch.schedulers import number_of

_KINDS: dict[type[Any], type[Any]] = {
    getattr(torch.optim, name): getattr(torch_optimizers, name)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop")
}


# Updates for which a table of learning rates may be made: 80 MB.
_MOST = 10_000_000


def is_torch(optimizer: object) -> bool:
    """Whether it is one of PyTorch's optimizers or schedulers."""
    return isinstance(optimizer, (torch.optim.Optimizer, lr_scheduler.LRScheduler))


def check(optimizer: object, schedule_steps: object) -> None:
    """Refuses a class, which `torch.optim` has beside the objects, and kinds without a formula.

    Raises:
        InvalidInputError: it is a class; or a number of steps is none, or stands beside what is no scheduler.
        UnsupportedOpError: it is of a kind without a formula.
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
        _kind(getattr(optimizer, "optimizer", optimizer))
        return
    held = optimizer if isinstance(optimizer, (tuple, list)) else []
    ours = optimizer is None or isinstance(optimizer, (str, Optimizer)) or any(isinstance(x, Group) for x in held)
    if not ours:
        scheduled = any(isinstance(x, lr_scheduler.LRScheduler) for x in held)
        way = "; a scheduler alone brings its optimizer" if scheduled else "; one alone, not in a list" if held else ""
        raise InvalidInputError(
            f"optimizer requires one of torch.optim, a scheduler of one, a name such as 'adam' or "
            f"None, got {brief(optimizer)}{way}"
        )


def _kind(optimizer: object) -> type[Any]:
    """Ours of the same name."""
    kind = _KINDS.get(type(optimizer))
    if kind is None:
        raise UnsupportedOpError(
            f"optimizer requires one of {sorted(known.__name__ for known in _KINDS)}, got {type(optimizer).__name__}; "
            "what='gradients' makes a step for an optimizer that you write yourself"
        )
    return kind


def groups_of(
    optimizer: Any, names: Mapping[int, str], used: Callable[[str], bool], schedule_steps: int | None = None
) -> list[Group]:
    """The groups of an optimizer, or of the one that a scheduler belongs to.

    Args:
        optimizer: either.
        names: identity of a parameter -> its name.
        used: whether a parameter of a name has a gradient; others are left out, as PyTorch does.
        schedule_steps: for how many updates a scheduler without a formula has a table.

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
        groups.append(Group(rule, list(chosen), None, _slots(rule, kept), steps))
    if scheduler is None:
        return groups
    schedules = schedulers.schedules_of(scheduler, [group.steps for group in groups], schedule_steps)
    return [dataclasses.replace(group, schedule=schedule) for group, schedule in zip(groups, schedules, strict=True)]


def stepped(optimizer: Any, copies: Mapping[int, torch.nn.Parameter]) -> None:
    """Does one step of an optimizer, or of the one that a scheduler belongs to, on copies of parameters.

    Args:
        optimizer: either; it stays as it is.
        copies: identity of a parameter -> its copy, with a gradient or without.
    """
    optimizer = getattr(optimizer, "optimizer", optimizer)
    fresh = {id(x): copies.get(id(x), x.detach().clone()) for group in optimizer.param_groups for x in group["params"]}
    groups = [{**group, "params": [fresh[id(x)] for x in group["params"]]} for group in optimizer.param_groups]
    own = type(optimizer)(groups)
    own.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    own.step()


def _rule(kind: type[Any], options: Mapping[str, Any], *, scheduled: bool) -> Optimizer:
    fields = {field.name for field in dataclasses.fields(kind)} & set(options)
    rate = options.get("initial_lr", options["lr"]) if scheduled else options["lr"]
    chosen = {name: number_of(options[name]) for name in fields}
    rule: Optimizer = kind(learning_rate=number_of(rate), **chosen)
    return rule


def _steps(rule: Optimizer, kept: Mapping[str, Mapping[str, Any]], scheduler: lr_scheduler.LRScheduler | None) -> int:
    """The number of updates done, which all weights of a group must share."""
    counts = set()
    told = 0 if scheduler is None else schedulers.updates_of(scheduler)
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
    found: dict[str, dict[str, Array]] = {}
    for name, values in kept.items():
        held = {key: values[key] for key in wanted if values.get(key) is not None}
        found[name] = {key: numbers(torch.as_tensor(value)) for key, value in held.items()}
    return found
