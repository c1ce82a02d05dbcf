"""`lstm-lower inspect` of TensorFlow's files: what is in them, and the command to go on with."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.sources import choice
from lstm_lower.errors import some

if TYPE_CHECKING:
    from lstm_lower.tensorflow.anatomy import Anatomy

# Rows of each part, so that all of it fits on a screen.
_ROWS = 6


def inspect_graph(
    path: Path,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    signature: str | None,
    checkpoint: Path | None,
    *,
    as_json: bool,
) -> None:
    """Prints what is in a file.

    Raises:
        InvalidModelError, InvalidInputError: the file is broken, or the names are not in it.
        OSError: it cannot be read.
    """
    from lstm_lower.tensorflow.anatomy import anatomy
    from lstm_lower.tensorflow.files.opening import NOTHING_SAVED, read_file

    file = read_file(path, checkpoint)
    found = anatomy(file, signature, inputs, outputs)
    command = None if file.is_empty else _command(found, path, inputs, outputs, signature)
    if as_json:
        console.print_json({**dataclasses.asdict(found), "command": command})
        return
    _print(found, command or f"nothing to import: {NOTHING_SAVED}")


def _print(found: Anatomy, command: str) -> None:
    by = f", by TensorFlow {found.tensorflow}" if found.tensorflow else ""
    out = console.out()
    out.print(escape(f"{found.kind}{by} (producer {found.producer}): {found.nodes} nodes, {found.functions} functions"))
    out.print()
    if found.recurrent:
        kinds = [
            [r.op, len(r.nodes), " ".join(f"{name}:{text}" for name, text in r.sizes.items()), r.nodes[0]]
            for r in found.recurrent[:_ROWS]
        ]
        console.table("recurrent op", "nodes", "sizes", "the first", rows=kinds, right=("nodes",))
        _more(len(found.recurrent))
        out.print()
    elif not found.loops:
        out.print("no recurrent op")
        out.print()
    rows = [*_control_flow(found), *_variables(found), *_step(found)]
    width = max(len(title) for title, _ in rows) + 2
    for title, text in rows:
        out.print(escape(f"{title:<{width}}{text}"))
    if found.unsupported:
        out.print()
        names = [f"{op} ({some(nodes, 1)})" for op, nodes in found.unsupported.items()]
        out.print(f"[bold red]would stop an import:[/] {escape(some(names, 2 * _ROWS))}")
    out.print()
    out.print(escape(command))


def _more(count: int) -> None:
    if count > _ROWS:
        console.out().print(f"and {count - _ROWS} more")


def _control_flow(found: Anatomy) -> list[tuple[str, str]]:
    loops = [f"{name} ({count} nodes)" for name, count in found.loops.items()]
    return [("loops", some(loops, 3)), ("branches", str(found.branches or "none"))]


def _variables(found: Anatomy) -> list[tuple[str, str]]:
    count = len(found.variables)
    if not count:
        return [("variables", "none")]
    have = "none has a value" if not found.with_value else f"{found.with_value} have values, in {found.checkpoint}"
    texts = [f"{name} {text}" for name, text in found.variables.items()]
    return [
        ("variables", f"{count}, of which {found.trained} are trained ({found.parameters:,} elements); {have}"),
        ("", some(texts, _ROWS)),
    ]


def _step(found: Anatomy) -> list[tuple[str, str]]:
    rows = []
    for name, entry in list(found.signatures.items())[:_ROWS]:
        rows.append((f"signature {name}", f"{_typed(entry['inputs'])} -> {_typed(entry['outputs'])}"))
    for title, key, texts in (
        ("loss", "losses", [f"{name} {text}" for name, text in found.losses.items()]),
        ("training step", "train_ops", found.train_ops),
    ):
        if texts:
            rows.append((title if key in found.recorded else f"likely {title}", some(texts, 3)))
    if found.losses or found.train_ops:
        rows.append(("nodes needed", str(found.needed)))
    for number, (name, text) in enumerate(list(found.inputs.items())[: 2 * _ROWS]):
        rows.append(("data comes in at" if number == 0 else "", f"{name} {text}"))
    if len(found.inputs) > 2 * _ROWS:
        rows.append(("", f"and {len(found.inputs) - 2 * _ROWS} more"))
    return rows


def _typed(entries: dict[str, str]) -> str:
    return f"({some([f'{name} {text}' for name, text in entries.items()], 4)})"


def _command(
    found: Anatomy, path: Path, inputs: Sequence[str] | None, outputs: Sequence[str] | None, signature: str | None
) -> str:
    """The command to go on with."""
    words = ["lstm-lower", "lower", str(path)]
    for option, text in zip(("signature", "inputs", "outputs"), choice(found, inputs, outputs, signature), strict=True):
        words += [f"--{option}", text] if text else []
    return shlex.join(words)
