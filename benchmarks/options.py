"""Options that several commands share, and how they hand out their figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lstm_lower.cli import console
from lstm_lower.cli.commands import JsonOption
from lstm_lower.errors import InvalidInputError

__all__ = ["JsonOption", "OutputOption", "hand_out", "parse_shape"]

OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the figures as JSON.", show_default=False)
]


def hand_out(figures: Any, output: Path | None, *, as_json: bool) -> None:
    """Writes figures to a file, where one is named, and prints them for a program, where that was asked for."""
    if output is not None:
        output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if as_json:
        console.print_json(figures)


def parse_shape(text: str) -> tuple[int, int, int, int]:
    """Reads `T,B,I,H`.

    Raises:
        InvalidInputError: it is malformed.
    """
    parts = text.split(",")
    if len(parts) != 4 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise InvalidInputError(f"--shape requires T,B,I,H, four sizes above 0, got {text!r}")
    T, B, I, H = (int(part) for part in parts)  # noqa: E741
    return T, B, I, H
