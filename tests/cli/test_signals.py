"""Signals that ask a command to end: nothing half-written stays, and the exit code tells which one it was."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lstm_lower.records import model_files
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.training.trainer import Trainer
from tests import kill_and_resume
from tests.support.command_line import TRAIN, run

ENDINGS = [signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", ENDINGS)
@pytest.mark.parametrize("existing", [False, True])
def test_a_signal_while_a_model_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, existing: bool
) -> None:
    target = tmp_path / "low.onnx"
    if existing:
        target.write_bytes(b"old")
    as_proto = model_files.as_proto

    def signalled(model: Any) -> Any:
        if any(tmp_path.glob(".low.onnx.*")):
            signal.raise_signal(number)
        return as_proto(model)

    monkeypatch.setattr(model_files, "as_proto", signalled)
    before = signal.getsignal(number)
    result = run("lower", TRAIN, "-o", target)
    assert signal.getsignal(number) is before
    monkeypatch.undo()
    assert result.exit_code == 128 + number
    assert result.output == ""
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([b"old"] if existing else [])


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDINGS)
def test_training_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    kill_and_resume.write_data(tmp_path)
    step = Trainer.step

    def signalled(self: Any, *arguments: Any) -> Any:
        if self.steps == 4:
            signal.raise_signal(number)
        return step(self, *arguments)

    words = ["--data", tmp_path / "data.npz", "--initial", tmp_path / "initial.npz", "--out", tmp_path / "run"]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", signalled)
        result = run("train", kill_and_resume.MODEL, *words, "--batch-size", 8, "--learning-rate", 0.5, "--no-plot")
    assert result.exit_code == 128 + number
    assert "interrupted and saved" in result.stderr
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 5
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def started(tmp_path: Path, *before: str) -> subprocess.Popen[str]:
    """A process that writes and waits."""
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from lstm_lower.cli import main, ops_command\n"
        "from lstm_lower.records.files import atomic_path\n"
        "def slow(*_, **__):\n"
        "    with atomic_path(Path(sys.argv[1])) as temporary:\n"
        "        temporary.write_text('half')\n"
        "        print('writing', flush=True)\n"
        "        time.sleep(20)\n"
        "ops_command._describe = slow\n"
        "main.app(['ops', 'BlockLSTM', '--json'])\n"
    )
    return subprocess.Popen(
        [*before, sys.executable, "-c", program, str(tmp_path / "out")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def hangup_of_nohup(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "end", "code"),
    [
        ([], lambda process: process.send_signal(signal.SIGTERM), 143),
        (["nohup"], hangup_of_nohup, 143),
    ],
    ids=["term", "nohup"],
)
def test_a_process_ends(
    tmp_path: Path, before: list[str], end: Callable[[subprocess.Popen[str]], object], code: int
) -> None:
    with started(tmp_path, *before) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "writing\n"
        end(process)
        assert process.wait(timeout=10) == code
        assert "Traceback" not in process.stderr.read()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_terminal_that_is_closed(tmp_path: Path) -> None:
    """The run is saved, though nothing can be told any more."""
    kill_and_resume.write_data(tmp_path)
    run_folder = tmp_path / "run"
    words = ["--data", tmp_path / "data.npz", "--initial", tmp_path / "initial.npz", "--out", run_folder, "--no-plot"]
    words += ["--batch-size", 8, "--learning-rate", 0.5, "--epochs", 100_000, "--save-every", 1]
    command = [sys.executable, "-m", "lstm_lower", "train", kill_and_resume.MODEL, *words]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*map(str, command)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        cwd=kill_and_resume.ROOT,
    ) as process:
        os.close(theirs)
        kill_and_resume.wait_for_checkpoint(process, run_folder)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=30) == 128 + signal.SIGHUP
    arrays, notes = checkpoint.read(run_folder / "checkpoint.safetensors")
    assert arrays
    assert notes["steps"] == len((run_folder / "metrics.jsonl").read_text().splitlines())
