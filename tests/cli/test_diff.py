"""`lstm-lower diff`: what it says, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from typer.testing import CliRunner

import lstm_lower as ll
from lstm_lower.cli.main import app

CHARACTERS = Path(__file__).parents[2] / "examples" / "graphs" / "char_lstm_train.onnx"


def test_same() -> None:
    result = CliRunner().invoke(app, ["diff", str(CHARACTERS), str(CHARACTERS)])
    assert result.exit_code == 0, result.output
    assert "the models are the same" in result.stdout


def test_different(tmp_path: Path) -> None:
    onnx.save(ll.lower(CHARACTERS), tmp_path / "lowered.onnx")
    words = ["diff", str(CHARACTERS), str(tmp_path / "lowered.onnx")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1, result.output
    assert "only in A" in result.stdout
    assert "BlockLSTMGrad" in result.stdout
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert found["equal"] is False
    assert found["inputs"] == []
    assert "BlockLSTM" in [node["op"] for node in found["removed"]]


def test_trouble(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    result = CliRunner().invoke(app, ["diff", str(CHARACTERS), str(tmp_path / "broken.onnx"), "--json"])
    assert result.exit_code == 2
    assert "an ONNX model is required" in result.stderr
