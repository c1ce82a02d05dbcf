"""Limits of what reading a file may cost, whoever wrote it, charged by all that makes more than it reads.

A few bytes can stand for any amount of work: functions that call each other three times, a constant of one number and a
shape, names that repeat what the one before begins with. Importers open an account for a file; what is made of it is
charged before it is made.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
import time
from collections.abc import Iterator

from lstm_lower.errors import InvalidInputError, OverBudgetError

VARIABLE = "LSTM_LOWER_BUDGET"


@dataclasses.dataclass(frozen=True)
class Budget:
    """Limits for one file. `LSTM_LOWER_BUDGET=nodes=5000000,seconds=3600` in the environment sets others.

    Attributes:
        nodes: of the graph, after calls of functions are written out.
        bytes: of memory beyond the file's own: constants of one number, sparse tensors, prefixes of names.
        depth: functions that call each other.
        seconds: of processor time.
    """

    nodes: int = 1_000_000
    bytes: int = 1 << 28
    depth: int = 64
    seconds: int = 1200

    @classmethod
    def now(cls) -> Budget:
        """The limits that are in force.

        Raises:
            InvalidInputError: the variable in the environment is malformed.
        """
        given = dict(part.partition("=")[::2] for part in os.environ.get(VARIABLE, "").split(",") if part)
        names = [field.name for field in dataclasses.fields(cls)]
        for name, number in given.items():
            if name not in names or not number.isdecimal():
                raise InvalidInputError(f"{VARIABLE} requires {'=N,'.join(names)}=N, got '{name}={number}'")
        return cls(**{name: int(number) for name, number in given.items()})


@dataclasses.dataclass
class _Account:
    nodes: int = 0
    bytes: int = 0
    start: float = dataclasses.field(default_factory=time.process_time)


_OPEN: contextvars.ContextVar[_Account | None] = contextvars.ContextVar("account", default=None)


@contextlib.contextmanager
def account() -> Iterator[None]:
    """Opens an account for a file; inside another one, that one is charged.

    Raises:
        InvalidInputError: the variable in the environment is malformed.
    """
    Budget.now()
    if _OPEN.get() is not None:
        yield
        return
    token = _OPEN.set(_Account())
    try:
        yield
    finally:
        _OPEN.reset(token)


def charge(what: str, *, nodes: int = 0, size: int = 0) -> None:
    """Charges what is about to be made, and the time until now, to the account that is open, if there is one.

    Args:
        what: what is read, the beginning of the error.
        nodes: to be made.
        size: bytes to be made.

    Raises:
        OverBudgetError: it is more than the budget.
    """
    spent = _OPEN.get() or _Account()
    spent.nodes += nodes
    spent.bytes += size
    check(what, "nodes", spent.nodes)
    check(what, "bytes", spent.bytes)
    check(what, "seconds", int(time.process_time() - spent.start))


def check(what: str, name: str, got: int) -> None:
    """Checks a number that is known before anything is made, without charging it.

    Args:
        what: what is read, the beginning of the error.
        name: which limit of a `Budget`.
        got: the number.

    Raises:
        OverBudgetError: it is more than the budget.
    """
    most = getattr(Budget.now(), name)
    if got > most:
        unit = f"a depth of {most}" if name == "depth" else f"{most:,} {name}"
        raise OverBudgetError(f"{what} requires at most {unit}, got {got:,}; {VARIABLE}={name}={got} allows it")
