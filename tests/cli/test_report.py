"""`lstm-lower report`: what it writes and says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lstm_lower.cli.main import app

ROOT = Path(__file__).parents[2]
CHARACTERS = ROOT / "examples" / "graphs" / "char_lstm_train.onnx"


@pytest.mark.slow
def test_writes_a_page(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(CHARACTERS), "-o", str(target), "--dim", "batch=2", "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["output"] == str(target)
    assert said["bytes"] == target.stat().st_size
    assert said["passed"] is True
    assert said["passes"][0] == "lower-composites"
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--no-run", "--dim", "batch=2"], "--no-run requires none of"),
        (["--no-run", "--schedule", "fast"], "schedule requires"),
        (["--no-run", "--node-data", "data"], "--node-data requires a run"),
        (["--dim", "batch"], "--dim requires NAME=SIZE"),
        (["--node-data", str(CHARACTERS)], "--node-data requires a folder, got the file"),
        (["-o", "missing/page.html", "--node-data", "data"], "there is no folder"),
        (["-i", "missing.npz"], "missing.npz"),
        (["--dim", "steps=2"], "--no-run writes a report without errors and times"),
        (["-p", "abacus"], "or a plug-in, one of ['openvino', 'ggml', 'webgpu']\n"),
        (["--no-run", "--inputs", "x"], "--inputs requires a TensorFlow graph"),
        (["--inputs", "feeds.npz"], "got feeds.npz; --data takes feeds"),
    ],
)
def test_a_failure_leaves_no_file(words: list[str], says: str, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(CHARACTERS), "-o", str(target), *words])
    assert result.exit_code == 1
    assert says in result.stderr
    assert list(tmp_path.iterdir()) == []
