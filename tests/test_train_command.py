"""`lstm-lower train`: its folder, going on after an interruption, what it refuses."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lstm_lower.cli.main import app
from lstm_lower.runtime import checkpoint, training_run
from tests import kill_and_resume


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kill_and_resume.write_data(tmp_path)
    return tmp_path


def train(folder: Path, *more: object, epochs: int = 2) -> Any:
    words = ["--data", folder / "data.npz", "--initial", folder / "initial.npz", "--out", folder / "run"]
    words += ["--epochs", epochs, "--batch-size", 8, "--learning-rate", 0.5, *more]
    return CliRunner().invoke(app, ["train", str(kill_and_resume.MODEL), *map(str, words)], env={"COLUMNS": "200"})


def test_a_run_leaves_checkpoint_log_and_pictures(folder: Path) -> None:
    result = train(folder)
    assert result.exit_code == 0, result.output
    assert "step 16 of 16, loss" in result.stdout
    names = {path.name for path in (folder / "run").iterdir()}
    assert names == {
        "checkpoint.safetensors",
        "checkpoint.safetensors.previous",
        "metrics.jsonl",
        "loss.png",
        "loss.svg",
    }
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 17))
    assert [line["epoch"] for line in lines] == [0] * 8 + [1] * 8
    assert (folder / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "run" / "loss.svg").read_text()


def test_more_epochs_go_on(folder: Path) -> None:
    assert train(folder, "--no-plot", epochs=1).exit_code == 0
    result = train(folder, "--no-plot", epochs=3)
    assert "resumed at step 8 of 24" in result.stderr
    resumed = (folder / "run" / "checkpoint.safetensors").read_bytes()
    (folder / "run").rename(folder / "first")
    assert train(folder, "--no-plot", epochs=3).exit_code == 0
    assert (folder / "run" / "checkpoint.safetensors").read_bytes() == resumed


def test_control_c_saves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train(folder, "--no-plot").exit_code == 0
    (folder / "run").rename(folder / "whole")
    step = training_run.Trainer.step

    def interrupted(self: Any, *arguments: Any) -> Any:
        if self.steps == 4:
            signal.raise_signal(signal.SIGINT)
        return step(self, *arguments)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(training_run.Trainer, "step", interrupted)
        result = train(folder, "--no-plot")
    assert result.exit_code == 130
    assert "interrupted and saved" in result.stderr
    assert signal.getsignal(signal.SIGINT) is before
    assert checkpoint.read(folder / "run" / "checkpoint.safetensors")[1]["steps"] == 5
    assert train(folder, "--no-plot").exit_code == 0
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        assert (folder / "run" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def test_killed_runs_go_on_bit_for_bit(folder: Path) -> None:
    kill_and_resume.complete(folder, "whole")
    rng = random.Random(7)
    for _ in range(2):
        kill_and_resume.kill_once(folder, "killed", rng.uniform(0.001, 0.05))
    kill_and_resume.complete(folder, "killed")
    assert kill_and_resume.same(folder, "whole", "killed")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", 1], "seed requires 0, as the run there has it, got 1"),
        (["--batch-size", 4], "batch_size requires 8, as the run there has it, got 4"),
    ],
)
def test_another_plan_in_the_same_folder_is_refused(folder: Path, more: list[object], message: str) -> None:
    assert train(folder, "--no-plot", epochs=1).exit_code == 0
    before = (folder / "run" / "checkpoint.safetensors").read_bytes()
    result = train(folder, "--no-plot", *more)
    assert result.exit_code == 1
    assert message in result.stderr
    assert (folder / "run" / "checkpoint.safetensors").read_bytes() == before


def test_wrong_data_is_refused(folder: Path) -> None:
    with np.load(folder / "data.npz") as file:
        arrays = dict(file)
    np.savez(folder / "data.npz", **{"ids:0": arrays["ids:0"]})
    assert "data requires an array 'labels:0'" in train(folder).stderr
    np.savez(folder / "data.npz", **arrays | {"labels:0": arrays["labels:0"][:, :3]})
    assert "as many samples in every array" in train(folder).stderr
    np.savez(folder / "data.npz", **arrays | {"labels:0": arrays["labels:0"][0]})
    assert "data 'labels:0' requires rank 2" in train(folder).stderr
