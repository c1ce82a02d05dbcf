"""Errors of lstm-lower.

Every message follows one form, `<op> '<node>': <operand> requires <what>, got <what>`, so that a user sees which
node of which model to look at, what it should hold, and what it holds.
"""

from __future__ import annotations

import collections
import contextlib
import difflib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self


class AboutNode(str):
    """A text about one node, which an error takes its data from.

    Attributes:
        op: the op's type.
        nodes: the node's name; none of an eager call, which has no node.
        operand: the operand or attribute at fault, or `None`.
    """

    __slots__ = ("nodes", "op", "operand")

    nodes: tuple[str, ...]
    op: str
    operand: str | None

    def __new__(cls, text: str, op: str, node: str | None, operand: str | None = None) -> Self:
        error = super().__new__(cls, text)
        error.op, error.nodes, error.operand = op, (() if node is None else (node,)), operand
        return error

    def __add__(self, more: str) -> AboutNode:
        return AboutNode(f"{self}{more}", self.op, next(iter(self.nodes), None), self.operand)


def shown(text: str, *, lines: bool = False) -> str:
    """A text as a terminal or page may show it, whoever wrote the names in it.

    What is not printable, as Python's `repr` has it, is written out as there: control characters, by which a name would
    command a terminal, and marks that change the direction of what follows or take no room.

    Args:
        text: the text.
        lines: whether ends of lines are the text's own, and stay.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or (lines and letter == "\n") else letter.encode("unicode_escape").decode()
        for letter in text
    )


def first_line(error: BaseException) -> str:
    """An error's kind and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(". :")


class LstmLowerError(ValueError):
    """Base of every error that lstm-lower raises on purpose. It can be sent to other processes.

    Attributes:
        nodes: names of the nodes that it is about, where it is about some.
        op: their op type, where it is one.
        operand: the operand, attribute or input at fault, where it is one.
    """

    nodes: tuple[str, ...]
    op: str | None
    operand: str | None

    def __init__(self, *text: object, about: Iterable[str | LstmLowerError] = (), operand: str | None = None) -> None:
        """Makes an error.

        Args:
            text: what is required, and what came.
            about: the texts or errors that it was made of, where they are several.
            operand: the operand, attribute or input at fault, where the text does not know it.
        """
        told = [line for line in (*text, *about) if isinstance(line, (AboutNode, LstmLowerError))]
        super().__init__(*(str(part) if isinstance(part, AboutNode) else part for part in text))
        self.nodes = tuple(dict.fromkeys(node for line in told for node in line.nodes))
        self.op = _only(line.op for line in told)
        self.operand = operand if operand is not None else _only(line.operand for line in told)

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses' constructors take other things than the text.
        return _restored, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        return shown(super().__str__(), lines=True)


def _only(values: Iterable[str | None]) -> str | None:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _restored(kind: type[LstmLowerError], text: tuple[object, ...], data: dict[str, Any]) -> LstmLowerError:
    error = kind.__new__(kind, *text)
    error.__dict__.update(data)
    return error


class InvalidModelError(LstmLowerError):
    """The model is malformed: wrong rank, size, dtype, attribute, a dangling name or a cycle."""


class InvalidInputError(LstmLowerError):
    """A value given at run time (a feed, an eager operand or attribute) does not fit."""


class MisfitError(InvalidInputError):
    """An operand or attribute does not fit a definition; `OpDef.bind` says of which op and node.

    Attributes:
        operand: the operand or attribute.
        what: what it requires.
        got: what came.
    """

    operand: str

    def __init__(self, operand: str, what: str, got: object) -> None:
        super().__init__(f"{operand} requires {what}, got {got}", operand=operand)
        self.what, self.got = what, got


class OverBudgetError(LstmLowerError):
    """A file stands for more nodes, bytes, depth or time than is allowed by default; `lstm_lower.budget` has limits."""


class UnsupportedOpError(LstmLowerError):
    """The graph holds ops that cannot be lowered; the message names each, with node name and reason."""


class LstmLowerWarning(UserWarning):
    """Something to know about a model that is made nevertheless; the command line prints it as one line."""

    def __str__(self) -> str:
        return shown(super().__str__(), lines=True)


def warn(text: str, kind: type[LstmLowerWarning] = LstmLowerWarning) -> None:
    """Warns of something at the line by which the package was called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("lstm_lower", "contextlib"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)


class NotFiniteError(LstmLowerError):
    """The loss of a training step, or a weight after it, is infinite or NaN."""


class WorkersLostError(LstmLowerError):
    """All workers were lost, and the training state with them; the last checkpoint has it."""


@contextlib.contextmanager
def damage_told(error: Callable[[Exception], LstmLowerError]) -> Iterator[None]:
    """Where bytes or texts of others are read: whatever breaks on them becomes one error.

    Damaged bytes break zipfile, zlib, numpy, json and protobuf in dozens of ways, which no list of types holds. Missing
    files and permissions pass as they are.

    Args:
        error: makes the error of what was raised.

    Raises:
        LstmLowerError: something was.
    """
    try:
        yield
    except (LstmLowerError, FileNotFoundError, PermissionError):
        raise
    except Exception as raised:
        raise error(raised) from raised


def requires(op: str, node: str | None, operand: str, what: str, got: object) -> AboutNode:
    """Returns the text of an error in the project's one form.

    Args:
        op: op type, for example `BlockLSTMGrad`.
        node: node name; `None` for an eager call, which has no node.
        operand: the operand or attribute at fault.
        what: what it requires.
        got: what came.
    """
    where = shown(op if node is None else f"{op} '{node}'")
    return AboutNode(f"{where}: {shown(operand)} requires {what}, got {got}", op, node, operand)


def some(things: Sequence[object], most: int = 4) -> str:
    """A few things for a message, and how many more there are: `a, b, c, d and 12 more`.

    Args:
        things: all of them.
        most: how many are named; one more is named rather than counted.
    """
    if len(things) <= most + 1:
        return ", ".join(shown(str(thing)) for thing in things) or "none"
    return f"{', '.join(shown(str(thing)) for thing in things[:most])} and {len(things) - most} more"


def repeated(names: Iterable[str]) -> list[str]:
    """The names that occur more than once, sorted."""
    return sorted(name for name, count in collections.Counter(names).items() if count > 1)


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: `; did you mean 'loss:0'?`, or nothing.

    Args:
        name: the name, of a tensor with its number behind a colon.
        names: the known names, those of nodes without a number.
    """
    stem, colon, number = name.partition(":")
    spelled = {each.lower(): each for each in names}
    matches = [spelled[near] for near in difflib.get_close_matches(stem.lower(), spelled, n=3, cutoff=0.75)]
    if not matches:
        return ""
    return f"; did you mean {' or '.join(repr(near + colon + number) for near in matches)}?"


def brief(message: object) -> str:
    """The first line of a message; where that announces a list, the first of the list too."""
    first, *rest = str(message).splitlines() or [""]
    return f"{first} {rest[0].strip()}" if rest and first.endswith(":") else first


def few_of_each(found: Iterable[tuple[str, str]], most: int = 3) -> str:
    """The lines of an error that is about many nodes: a few of each kind, and how many more there are.

    Args:
        found: for each node its kind, such as its op type with the reason, and its line.
        most: how many lines of a kind; one more is written rather than counted.
    """
    kinds: dict[str, list[str]] = {}
    for kind, line in found:
        kinds.setdefault(kind, []).append(line)
    lines: list[str] = []
    for kind, of_kind in kinds.items():
        lines += of_kind if len(of_kind) <= most + 1 else [*of_kind[:most], f"{kind}: {len(of_kind) - most} more"]
    return "\n".join(lines)
