"""Errors of lstm-lower.

Every message follows one form, `<op> '<node>': <operand> requires <what>, got <what>`, so that a user sees which
node of which model to look at, what it should hold, and what it holds.
"""

from __future__ import annotations

import collections
import difflib
from collections.abc import Iterable, Sequence


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


class LstmLowerError(ValueError):
    """Base of every error that lstm-lower raises on purpose."""

    def __str__(self) -> str:
        return shown(super().__str__(), lines=True)


class InvalidModelError(LstmLowerError):
    """The model is malformed: wrong rank, size, dtype, attribute, a dangling name or a cycle."""


class InvalidInputError(LstmLowerError):
    """A value given at run time (a feed, an eager operand or attribute) does not fit."""


class MisfitError(InvalidInputError):
    """An operand or attribute does not fit a definition; `OpDef.bind` says of which op and node.

    Attributes:
        operand: the operand or attribute at fault.
        what: what it requires.
        got: what came.
    """

    def __init__(self, operand: str, what: str, got: object) -> None:
        super().__init__(f"{operand} requires {what}, got {got}")
        self.operand, self.what, self.got = operand, what, got


class UnsupportedOpError(LstmLowerError):
    """The graph holds ops that cannot be lowered; the message names each, with node name and reason."""


class LstmLowerWarning(UserWarning):
    """Something to know about a model that is made nevertheless; the command line prints it as one line."""

    def __str__(self) -> str:
        return shown(super().__str__(), lines=True)


class NotFiniteError(LstmLowerError):
    """The loss of a training step, or a weight after it, is infinite or NaN."""


class WorkersLostError(LstmLowerError):
    """All workers were lost, and the training state with them; the last checkpoint has it."""


def requires(op: str, node: str | None, operand: str, what: str, got: object) -> str:
    """Returns the text of an error in the project's one form.

    Args:
        op: op type, for example `BlockLSTMGrad`.
        node: node name; `None` for an eager call, which has no node.
        operand: the operand or attribute at fault.
        what: what it requires.
        got: what came.
    """
    where = shown(op if node is None else f"{op} '{node}'")
    return f"{where}: {shown(operand)} requires {what}, got {got}"


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
    spelled = {known.lower(): known for known in names}
    found = [spelled[near] for near in difflib.get_close_matches(stem.lower(), spelled, n=3, cutoff=0.75)]
    if not found:
        return ""
    return f"; did you mean {' or '.join(repr(near + colon + number) for near in found)}?"


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
