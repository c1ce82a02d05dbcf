"""Processes that are measured: what they answer, how they fail, what memory they tell of."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.measuring.model_run import ModelRun
from lstm_lower.runtime.measuring.worker import Measured, Worker, WorkerError, take_turns
from tests.support import measured

SIZE = 64 * 2**20


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker(measured.Filler, SIZE, threads=3)
    yield made
    made.close()


def test_it_runs_elsewhere(worker: Worker) -> None:
    assert worker.refusal is None
    assert worker.facts["process"] != os.getpid()
    assert worker.facts["threads"] == "3", "set before anything is imported"


def test_turns(worker: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    times = take_turns([worker], seconds=0.1, rounds=2)[worker]
    assert len(times) % 2 == 0
    assert all(0 < seconds < 5 for seconds in times)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("rounds", "turns"), [(1, 1), (6, 2)])
def test_slow_runs_have_fewer_turns(rounds: int, turns: int) -> None:
    """Of a run longer than the time given; none of them is thrown away."""

    class Slow(Measured):
        runs = 0

        def run(self) -> None:
            self.runs += 1
            time.sleep(0.6)

    slow = Slow()
    times = take_turns([slow], seconds=0.1, rounds=rounds)[slow]  # type: ignore[list-item]
    assert len(times) == turns
    assert slow.runs == turns + 1, "one tells how long a run takes"


@pytest.mark.parametrize("good_runs", [0, 2])
def test_one_that_fails_in_a_round_is_left_out_and_says_how(worker: Worker, good_runs: int) -> None:
    failing = Worker(measured.EndsAfter, good_runs, threads=1)
    times = take_turns([failing, worker], seconds=0.1, rounds=3)
    assert list(times) == [worker]
    assert worker.refusal is None
    assert "its process ended with exit code 3" in str(failing.refusal)
    failing.close()


def test_memory_of_a_run(worker: Worker) -> None:
    assert worker.ask("memory") == pytest.approx(SIZE, rel=0.05)


def test_freed_memory_does_not_count() -> None:
    worker = Worker(measured.Fragmented, 20, threads=1)
    assert worker.ask("memory") == pytest.approx(21 * 3 * 2**20, rel=0.05)
    worker.close()


def test_a_failure_is_told_and_the_process_lives(worker: Worker) -> None:
    with pytest.raises(WorkerError, match="ValueError: not this") as caught:
        worker.ask("refuse", "this")
    assert isinstance(caught.value, InvalidInputError)
    assert caught.value.refusal.kind == "ValueError"
    assert worker.ask("memory") > 0


@pytest.mark.slow
def test_a_process_that_ends() -> None:
    worker = Worker(measured.Filler, 8, threads=1)
    with pytest.raises(WorkerError, match="ended with exit code 3"):
        worker.ask("end")
    with pytest.raises(WorkerError, match="ended with exit code 3"):
        worker.times(1)
    worker.close()


@pytest.mark.parametrize(
    ("make", "text", "is_import"),
    [(measured.refused, "ValueError: no such thing", False), (measured.missing, "No module named 'no_such", True)],
)
def test_what_cannot_be_made(make: object, text: str, is_import: bool) -> None:
    worker = Worker(make, threads=1)  # type: ignore[arg-type]
    assert text in str(worker.refusal)
    assert worker.refusal is not None
    assert worker.refusal.is_import is is_import
    worker.close()
    assert not multiprocessing.active_children() or all(child.is_alive() for child in multiprocessing.active_children())


@pytest.mark.slow
def test_memory_of_a_model(tmp_path: Path) -> None:
    """What onnxruntime's arena would keep from run to run counts in every run."""
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[N] x) => (float y) '
        "{ a = Exp(x) y = ReduceSum<keepdims = 0>(a) }"
    )
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    feeds = {"x": np.zeros(SIZE // 4, np.float32)}
    worker = Worker(ModelRun, str(tmp_path / "model.onnx"), feeds, 1, threads=1)
    found = [worker.ask("memory") for _ in range(2)]
    worker.close()
    assert found == pytest.approx([SIZE, SIZE], rel=0.05)
