"""A record of what the optimiser did and why it left something alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import onnx_ir as ir

from lstm_lower.errors import shown
from lstm_lower.graph.form import node_label


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A candidate that a pass left as it was."""

    pass_name: str
    where: str
    reason: str

    def __str__(self) -> str:
        return shown(f"{self.pass_name}: {self.where}: {self.reason}")


@dataclasses.dataclass(frozen=True)
class Change:
    """A pass that changed the model, with the model's text before and after when dumps were asked for."""

    pass_name: str
    round: int
    before: str | None
    after: str | None


class Trace:
    """Collects changes and refusals of one run of the optimiser.

    Attributes:
        dump: whether the model's text is kept before and after every pass that changes something.
        changes: in order.
        refusals: each reason once, in order of first occurrence.
        notes: why loops are as they were, for a reader who expected more.
    """

    def __init__(self, *, dump: bool = False, watch: Callable[[str, int, ir.Model], object] | None = None) -> None:
        """Begins.

        Args:
            dump: see above.
            watch: told of every pass that changed the model: its name, the round, and the model as it left it.
        """
        self.dump = dump
        self.watch = watch
        self.changes: list[Change] = []
        self.notes: list[str] = []
        self._refusals: dict[Refusal, None] = {}

    @property
    def refusals(self) -> list[Refusal]:
        """Candidates left alone, each once."""
        return list(self._refusals)

    def refuse(self, pass_name: str, where: ir.Node | ir.Value | str, reason: str) -> None:
        """Records why a candidate is left alone.

        Args:
            pass_name: the pass.
            where: the candidate.
            reason: what it would have needed.
        """
        text = where if isinstance(where, str) else _describe(where)
        self._refusals[Refusal(pass_name, text, reason)] = None

    def note(self, text: str) -> None:
        """Records something about the whole model."""
        self.notes.append(text)

    def changed(self, pass_name: str, round_number: int, before: str | None, after: str | None) -> None:
        """Records that a pass changed the model."""
        self.changes.append(Change(pass_name, round_number, before, after))


def _describe(where: ir.Node | ir.Value) -> str:
    if isinstance(where, ir.Value):
        return f"'{where.name}'"
    return f"{where.op_type} '{node_label(where)}'"
