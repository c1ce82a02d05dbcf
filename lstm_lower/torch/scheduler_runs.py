"""Learning rates of schedulers that call functions of Python: those that the scheduler itself sets, run ahead."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.optim import lr_scheduler

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.passes.training.schedules import RateTable
from lstm_lower.torch.pytorch_errors import first_line

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
    with _put_back(scheduler), warnings.catch_warnings():
        # No optimizer is stepped between.
        warnings.simplefilter("ignore")
        for update in range(updates):
            if update:
                try:
                    scheduler.step()
                except Exception as error:
                    raise InvalidInputError(
                        f"schedule_steps requires a scheduler that can be stepped as often, got {first_line(error)} of "
                        f"a {type(scheduler).__name__} at its step {update}; a smaller schedule_steps ends before"
                    ) from error
            found.append([{name: _plain(group[name]) for name in names if name in group} for group in groups])
    return found


def _plain(value: Any) -> Any:
    """Numbers of what may be tensors."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, Tensor) else value


@contextlib.contextmanager
def _put_back(scheduler: lr_scheduler.LRScheduler) -> Iterator[None]:
    """Lets a scheduler run on copies of what it and its parts hold, and puts its optimizer's options back.

    The scheduler and the optimizer stay the objects that they are, as functions may look at them.
    """
    parts = _parts(scheduler)
    optimizer = scheduler.optimizer
    groups = [dict(group) for group in optimizer.param_groups]
    tensors = [(value, value.clone()) for group in groups for value in group.values() if isinstance(value, Tensor)]
    stay = {id(each): each for each in (optimizer, *parts)}
    held = [(part, dict(vars(part))) for part in parts]
    try:
        copies = copy.deepcopy([kept for _, kept in held], stay)
    except Exception as error:
        raise InvalidInputError(
            f"schedule_steps requires a scheduler that copy.deepcopy can copy, got {first_line(error)} of a "
            f"{type(scheduler).__name__}"
        ) from error
    try:
        for part, copied in zip(parts, copies, strict=True):
            vars(part).update(copied)
        yield
    finally:
        for part, kept in held:
            vars(part).clear()
            vars(part).update(kept)
        for group, kept in zip(optimizer.param_groups, groups, strict=True):
            group.clear()
            group.update(kept)
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
