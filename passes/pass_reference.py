"""Writes `docs/passes.md` from the catalog: `python -m lstm_lower.passes.pass_reference docs/passes.md`.

What stands before the first pass is written by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx_ir as ir
from onnx import parser

from lstm_lower.graph.dump import dump
from lstm_lower.passes.catalog import ENTRIES, Entry
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.pipeline import preparing_steps


def example(entry: Entry) -> tuple[ir.Model, ir.Model]:
    """An entry's example in the form that passes require, and what the pass makes of it."""
    steps = [step for step in preparing_steps() if step.name != entry.name]
    before = run_passes(parser.parse_model(entry.example), steps)
    return before, run_passes(before, [entry.make()])


def page(text: str) -> str:
    """The page as it should be.

    Args:
        text: the page as it is.
    """
    return text.partition("\n## ")[0] + "".join(map(_section, ENTRIES))


def _section(entry: Entry) -> str:
    before, after = map(dump, example(entry))
    return (
        f"\n## {entry.name}\n\n{entry.does[0].upper()}{entry.does[1:]}.\n\n"
        f"- Before: {entry.requires}.\n- After: {entry.ensures}.\n\n"
        f"```text\n{before}```\n\nbecomes\n\n```text\n{after}```\n"
    )


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(page(place.read_text(encoding="utf-8")), encoding="utf-8")
