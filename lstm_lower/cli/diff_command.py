"""`lstm-lower diff`: what differs between two models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.sources import ImportOptions, open_model

if TYPE_CHECKING:
    from lstm_lower.passes.difference import Difference, NamedChange

# What the command ends with, as `diff` does.
DIFFERENT, TROUBLE = 1, 2


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="A model.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another model.")],
    *,
    as_json: bool,
) -> None:
    """Show what differs between two models: interface, nodes at every level, weights, metadata.

    Names of nodes and inner values do not count if the same is computed. Exit code 0 if nothing differs, 1 if
    something does, 2 if the models cannot be compared.
    """
    from lstm_lower.passes.difference import difference

    found = difference(open_model(first, ImportOptions()), open_model(second, ImportOptions()))
    if as_json:
        console.print_json({"equal": found.is_empty, **dataclasses.asdict(found)})
    else:
        _print(found)
    if not found.is_empty:
        raise typer.Exit(DIFFERENT)


def _print(found: Difference) -> None:
    if found.is_empty:
        console.out().print("the models are the same")
        return
    for title, changes in (
        ("opset of", found.opsets),
        ("input", found.inputs),
        ("output", found.outputs),
        ("nodes of", found.operators),
        ("weight", found.weights),
        ("metadata", found.metadata),
    ):
        _print_changes(title, changes)
    for title, nodes in (("only in A", found.removed), ("only in B", found.added)):
        if nodes:
            console.table(title, "node", "in", rows=[[node.op, node.name, node.place] for node in nodes])
            console.out().print()
    for change in found.changed:
        console.out().print(escape(f"{change.op} {change.name}, in {change.place}:"))
        for line in change.what:
            console.out().print(escape(f"  {line}"))


def _print_changes(title: str, changes: list[NamedChange]) -> None:
    if changes:
        rows = [[change.name, _cut(change.before), _cut(change.after)] for change in changes]
        console.table(title, "A", "B", rows=rows)
        console.out().print()


def _cut(text: str | None, most: int = 60) -> str:
    if text is None:
        return "-"
    return text if len(text) <= most else f"{text[: most - 1]}…"
