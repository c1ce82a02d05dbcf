"""The examples run, and do what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


def run(script: str, *words: object) -> str:
    command = [sys.executable, str(EXAMPLES / script), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_character_model_learns(tmp_path: Path) -> None:
    lines = run("char_model/train.py", "--steps", 150, "--out", tmp_path).splitlines()
    losses = [float(line.rpartition(" ")[2]) for line in lines]
    assert losses[-1] < 0.85 * losses[0]
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "checkpoint.safetensors").is_file()


def test_saliency_ends_where_the_classifier_stops_reading(tmp_path: Path) -> None:
    values = [float(word) for word in run("saliency/saliency.py", "--out", tmp_path).split()[4:]]
    assert len(values) == 12
    assert min(values[:9]) > 0 == max(values[9:])
    assert (tmp_path / "saliency.png").is_file()


def test_pipeline() -> None:
    before, after = run("pass_pipeline/pipeline.py").splitlines()
    assert before.startswith("before: ")
    assert after.startswith("lowered: ")


def test_eager_ops() -> None:
    assert "by finite differences" in run("eager_ops/eager.py")


def test_digits_reach_the_accuracy_of_keras(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    run("keras_digits/export.py", "--out", tmp_path, "--compare", "--epochs", 2)
    run("keras_digits/finetune.py", "--folder", tmp_path, "--epochs", 2)
    keras, ours = (json.loads((tmp_path / name).read_text()) for name in ("keras.json", "onnxruntime.json"))
    assert abs(keras["accuracy"] - ours["accuracy"]) <= 0.01
    assert ours["losses"] == pytest.approx(keras["losses"], rel=2e-2)


def test_every_example_has_a_readme() -> None:
    folders = {path.parent for path in EXAMPLES.rglob("*.py")} - {EXAMPLES}
    assert [folder.name for folder in folders if not (folder / "README.md").is_file()] == []
    for folder in folders:
        text = (folder / "README.md").read_text()
        for picture in folder.glob("*.png"):
            assert f"]({picture.name})" in text
