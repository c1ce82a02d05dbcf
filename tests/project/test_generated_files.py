"""Files that are written from the definitions are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from lstm_lower import op_reference, raw_ops_source
from lstm_lower.passes import pass_reference
from lstm_lower.passes.gradients import op_table as gradient_table
from lstm_lower.tensorflow import op_table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "text", "command"),
    [
        ("lstm_lower/raw_ops.pyi", raw_ops_source.source, "python -m lstm_lower.raw_ops_source"),
        ("docs/tensorflow-ops.md", op_table.table, "python -m lstm_lower.tensorflow.op_table docs/tensorflow-ops.md"),
        (
            "docs/gradients.md",
            lambda: gradient_table.page((ROOT / "docs/gradients.md").read_text(encoding="utf-8")),
            "python -m lstm_lower.passes.gradients.op_table docs/gradients.md",
        ),
        (
            "docs/passes.md",
            lambda: pass_reference.page((ROOT / "docs/passes.md").read_text(encoding="utf-8")),
            "python -m lstm_lower.passes.pass_reference docs/passes.md",
        ),
    ],
)
def test_up_to_date(path: str, text, command: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == text(), f"run `{command}`"


def test_op_reference_is_up_to_date() -> None:
    docs = ROOT / "docs"
    paths = [docs / "ops.md", *(docs / "ops").glob("*.md")]
    pages = {path.relative_to(docs).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    assert pages == op_reference.reference(), "run `python -m lstm_lower.op_reference docs`"
