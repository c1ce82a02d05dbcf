"""`lstm-lower train`: its folder, going on after an interruption, what it refuses."""

from __future__ import annotations

import functools
import json
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import lstm_lower as ll
from lstm_lower.cli.main import app
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.training.trainer import Trainer
from tests import kill_and_resume


@functools.cache
def lowered() -> bytes:
    """The model of `kill_and_resume`, lowered once for all runs here; those in processes of their own lower it."""
    return ll.lower(onnx.load(kill_and_resume.MODEL)).SerializeToString()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kill_and_resume.write_data(tmp_path)
    (tmp_path / "model.onnx").write_bytes(lowered())
    return tmp_path


def train(folder: Path, *more: object, epochs: int = 2) -> Any:
    words = ["--data", folder / "data.npz", "--initial", folder / "initial.npz", "--out", folder / "run"]
    words += ["--epochs", epochs, "--batch-size", 8, "--learning-rate", 0.5, *more]
    model = folder / "model.onnx"
    return CliRunner().invoke(app, ["train", str(model), *map(str, words)], env={"COLUMNS": "200"})


@pytest.mark.slow
def test_a_run_leaves_checkpoint_log_and_pictures(folder: Path) -> None:
    result = train(folder)
    assert result.exit_code == 0, result.output
    assert "step 16 of 16, loss" in result.stdout
    names = {path.name for path in (folder / "run").iterdir()}
    assert names == {
        "checkpoint.safetensors",
        "checkpoint.safetensors.previous",
        "best.safetensors",
        "epochs.jsonl",
        "metrics.jsonl",
        "loss.png",
        "loss.svg",
        ".lock",
    }
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 17))
    assert [line["epoch"] for line in lines] == [0] * 8 + [1] * 8
    assert (folder / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "run" / "loss.svg").read_text()


@pytest.mark.slow
def test_more_epochs_go_on(folder: Path) -> None:
    assert train(folder, "--no-plot", epochs=1).exit_code == 0
    result = train(folder, "--no-plot", epochs=3)
    assert "resumed at step 8 of 24" in result.stderr
    resumed = (folder / "run" / "checkpoint.safetensors").read_bytes()
    (folder / "run").rename(folder / "first")
    assert train(folder, "--no-plot", epochs=3).exit_code == 0
    assert (folder / "run" / "checkpoint.safetensors").read_bytes() == resumed


@pytest.mark.slow
def test_control_c_saves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train(folder, "--no-plot").exit_code == 0
    (folder / "run").rename(folder / "whole")
    step = Trainer.step

    def interrupted(self: Any, *arguments: Any) -> Any:
        if self.steps == 4:
            signal.raise_signal(signal.SIGINT)
        return step(self, *arguments)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        result = train(folder, "--no-plot")
    assert result.exit_code == 130
    assert "interrupted and saved" in result.stderr
    assert signal.getsignal(signal.SIGINT) is before
    assert checkpoint.read(folder / "run" / "checkpoint.safetensors")[1]["steps"] == 5
    assert train(folder, "--no-plot").exit_code == 0
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        assert (folder / "run" / name).read_bytes() == (folder / "whole" / name).read_bytes()


@pytest.mark.slow
def test_killed_runs_go_on_bit_for_bit(folder: Path) -> None:
    kill_and_resume.complete(folder, "whole")
    rng = random.Random(7)
    kills = sum(kill_and_resume.kill_once(folder, "killed", rng.uniform(0.001, 0.05)) for _ in range(2))
    assert kills > 0
    kill_and_resume.complete(folder, "killed")
    assert kill_and_resume.same(folder, "whole", "killed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", 1], "seed requires 0, as the run there has it, got 1"),
        (["--clip-norm", 1], "clip_norm requires None, as the run there has it, got 1.0"),
        (["--accumulate", 2], "accumulate requires 1, as the run there has it, got 2"),
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


@pytest.mark.slow
def test_another_learning_rate_is_said_and_taken(folder: Path) -> None:
    assert train(folder, "--no-plot", epochs=1).exit_code == 0
    result = train(folder, "--no-plot", "--learning-rate", 0.25)
    assert "learning rate 0.25 from here on, 0.5 before" in result.stderr
    assert checkpoint.read(folder / "run" / "checkpoint.safetensors")[1]["learning_rate"] == 0.25


@pytest.mark.slow
def test_a_run_that_is_done_says_so(folder: Path) -> None:
    assert train(folder, "--no-plot", epochs=2).exit_code == 0
    result = train(folder, "--no-plot", epochs=1)
    assert result.exit_code == 0
    assert "nothing to do: the run in" in result.stderr
    assert "step 16 of 16" in result.stdout


@pytest.mark.slow
def test_every_epoch_gets_a_line_without_a_terminal(folder: Path) -> None:
    lines = train(folder, "--no-plot", epochs=3).stderr.splitlines()
    assert [line.partition(", ")[0] for line in lines] == [f"epoch {n} of 3: step {8 * n} of 24" for n in (1, 2, 3)]
    losses = [json.loads(line)["loss"] for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert f"mean loss {np.mean(losses[8:16]):.4g}, " in lines[1]
    (resumed, line) = train(folder, "--no-plot", epochs=4).stderr.splitlines()
    assert resumed == "resumed at step 24 of 32"
    assert line.startswith("epoch 4 of 4: step 32 of 32")


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_said_once_and_drawn(folder: Path) -> None:
    with np.load(folder / "initial.npz") as file:
        initial = dict(file)
    initial["dense_b:0"][:] = np.nan
    np.savez(folder / "initial.npz", **initial)
    stopped = train(folder)
    assert stopped.exit_code == 1
    assert "step 1: the loss must be finite, got nan" in stopped.stderr
    assert "was not yet written" in stopped.stderr
    traced = train(folder, "--trace-nan").stderr.replace("\n", "")
    assert "got nan; 'dense_b:0' holds nan before the step" in traced
    skipped = train(folder, "--on-nan", "skip")
    assert skipped.exit_code == 1
    assert "after step 8 state 'dense_b:0' must be finite" in skipped.stderr
    assert not (folder / "run" / "checkpoint.safetensors").exists()
    result = train(folder, "--on-nan", "ignore")
    assert result.exit_code == 0
    assert result.stderr.count("warning: the loss is nan at step 1\n") == 1
    assert "loss not a number" in result.stdout
    assert '"loss": null' in (folder / "run" / "metrics.jsonl").read_text()
    assert (folder / "run" / "loss.png").is_file()


@pytest.mark.slow
def test_data_that_the_model_does_not_read_is_named(folder: Path) -> None:
    with np.load(folder / "data.npz") as file:
        np.savez(folder / "data.npz", **dict(file), weather=np.zeros(3))
    assert "data.npz: weather" in train(folder, "--no-plot", epochs=1).stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids, _: {"ids:0": ids}, "data.npz requires an array 'labels:0' int32[20, batch], got ['ids:0']"),
        (lambda ids, labels: {"ids:0": ids, "labels:0": labels[:, :3]}, "as many samples in every array"),
        (
            lambda ids, labels: {"ids:0": ids, "labels:0": labels[0]},
            "data.npz 'labels:0' requires rank 2, int32[20, batch]",
        ),
        (
            lambda ids, labels: {"ids:0": ids.astype(np.float32), "labels:0": labels},
            "data.npz 'ids:0' requires int32[20, batch], got float32; array.astype('int32') converts it",
        ),
        (
            lambda ids, labels: {"ids:0": ids, "labels:0": labels[:5]},
            f"data.npz 'labels:0' requires int32[20, batch], got [5, {kill_and_resume.SAMPLES}] (axis 0)",
        ),
        (
            lambda ids, labels: {"ids:0": ids[:, :0], "labels:0": labels[:, :0]},
            "at least one batch of 8, got 0 samples",
        ),
    ],
    ids=["missing", "counts", "rank", "dtype", "shape", "empty"],
)
def test_wrong_data_is_refused_before_anything_is_written(folder: Path, change: Any, message: str) -> None:
    with np.load(folder / "data.npz") as file:
        changed = change(file["ids:0"], file["labels:0"])
    np.savez(folder / "data.npz", **changed)
    result = train(folder)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (folder / "run").exists()


def test_fewer_samples_than_a_batch_are_one_step(folder: Path) -> None:
    result = train(folder, "--no-plot", "--batch-size", 1000, epochs=1)
    assert "step 1 of 1, loss" in result.stdout


@pytest.mark.slow
def test_a_file_in_place_of_the_folder(folder: Path) -> None:
    (folder / "run").write_text("my notes")
    result = train(folder)
    assert "a folder is required for the run, got a file" in result.stderr
    assert (folder / "run").read_text() == "my notes"


@pytest.mark.parametrize(
    ("missing", "more", "message"),
    [
        (
            ["matplotlib"],
            [],
            "pip install 'lstm-lower[train]' (in a checkout: '.[train]'), or",
        ),
        (["safetensors"], ["--no-plot"], "train requires safetensors, got"),
        (["safetensors", "matplotlib"], [], "train requires safetensors, got"),
    ],
)
def test_what_is_not_installed_is_said_before_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, missing: list[str], more: list[str], message: str
) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    result = train(folder, *more)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (folder / "run").exists()


def test_no_plot_needs_no_matplotlib(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert train(folder, "--no-plot", epochs=1).exit_code == 0


@pytest.mark.slow
def test_a_run_of_another_model_is_refused(folder: Path) -> None:
    assert train(folder, "--no-plot", epochs=1).exit_code == 0
    path = folder / "run" / "checkpoint.safetensors"
    arrays, held = checkpoint.read(path)
    del arrays["emb:0"]
    checkpoint.write(path, arrays, held)
    message = "the run there does not fit the model: state requires the 8 values 'emb:0', "
    assert message in train(folder, "--no-plot", epochs=2).stderr


@pytest.mark.slow
def test_shards_validation_and_an_early_end(folder: Path) -> None:
    """What the command logs, keeps and prints for programs."""
    words = ["--validation", folder / "data.npz", "--patience", 1, "--min-delta", 10, "--tensorboard", "--json"]
    words += ["--schedule", "step", "--schedule-every", 1, "--schedule-factor", 0.5, "--warmup", 2]
    words[:0] = ["--data", folder / "shards"]
    result = train(folder, "--no-plot", *words, epochs=5)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["stopped"] == "val_loss did not improve for 1 epochs"
    assert printed["finished"]
    assert printed["steps"] == 16
    assert [logs["epoch"] for logs in printed["epochs"]] == [1, 2]
    assert printed["best"] == {"epoch": 2, "val_loss": printed["epochs"][1]["val_loss"]}
    np.testing.assert_allclose([logs["learning_rate"] for logs in printed["epochs"]], [0.5, 0.25], rtol=1e-6)
    lines = [json.loads(line) for line in (folder / "run" / "epochs.jsonl").read_text().splitlines()]
    assert lines == printed["epochs"]
    assert checkpoint.read(folder / "run" / "best.safetensors")[1]["steps"] == 16
    assert len(list((folder / "run" / "events").iterdir())) == 1
    again = train(folder, "--no-plot", *words, epochs=5)
    assert again.exit_code == 0
    assert "has ended early, val_loss did not improve for 1 epochs" in again.stderr


@pytest.mark.slow
def test_a_damaged_checkpoint_is_said_and_passed_over(folder: Path) -> None:
    assert train(folder, "--no-plot", epochs=2).exit_code == 0
    path = folder / "run" / "checkpoint.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    result = train(folder, "--no-plot", epochs=2)
    assert result.exit_code == 0
    assert "checkpoint.safetensors.previous; the run goes on from it" in result.stderr
    assert "resumed at step 8 of 16" in result.stderr
    assert path.read_bytes() == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--schedule", "plateau", "--warmup", 2], "--warmup requires another --schedule than plateau"),
        (["--schedule", "cosine", "--warmup", 16], "a schedule requires 0 <= warmup < total steps"),
        (["--pad", "ids:0"], "--pad requires INPUT=VALUE, got 'ids:0'"),
        (["--pad", "ids=0"], "pad requires names of data inputs"),
        (["--sample-axis", "ids:0=4"], "sample_axis of 'ids:0' requires an axis of int32[20, batch], got 4"),
        (["--monitor", "accuracy"], "mode requires 'min' or 'max' for the monitor 'accuracy'"),
        (["--validation", "none.npz"], "none.npz"),
    ],
)
def test_options_that_do_not_fit(folder: Path, more: list[object], message: str) -> None:
    result = train(folder, "--no-plot", *more)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (folder / "run").exists()


def test_a_step_that_tells_no_loss_trains_only_when_told_to(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> step (float[batch, 2] x, float[2] w) => (float total, float[2] new_w)'
        "{ mean = ReduceMean <keepdims=0> (x)  total = Identity (mean)  new_w = Sub (w, mean) }"
    )
    onnx.save(model, tmp_path / "step.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones([8, 2], np.float32))
    np.savez(tmp_path / "initial.npz", w=np.ones(2, np.float32))
    words = ["train", tmp_path / "step.onnx", "--data", tmp_path / "data.npz", "--initial", tmp_path / "initial.npz"]
    words += ["--out", tmp_path / "run", "--no-plot"]
    refused = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "200"})
    assert refused.exit_code == 1
    assert "as a scalar output 'loss', got none; its scalar outputs are total" in refused.stderr
    assert not (tmp_path / "run").exists()
    told = CliRunner().invoke(app, [*map(str, words), "--without-loss", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["steps"] == 1
