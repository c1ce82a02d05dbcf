"""Runs in a folder: losses that are no numbers, other processes, disks that are full, files that others wrote."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, LstmLowerWarning, NotFiniteError
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.data.opening import open_data
from lstm_lower.runtime.training.data.source import Order
from lstm_lower.runtime.training.fitting import Fit
from lstm_lower.runtime.training.run import Run
from tests.support.training_models import quadratic

Array = np.ndarray[Any, Any]

STEPS = 6


def data(bad: int | None = None) -> Array:
    """One sample a step; that of step `bad`, counted from 1, is no number."""
    x = np.arange(3 * STEPS, dtype=np.float32).reshape(STEPS, 3) / 10
    if bad is not None:
        x[bad - 1, 1] = np.nan
    return x


def run(folder: Path, x: Array, **options: Any) -> Fit:
    trainer = ll.Trainer(quadratic(), optimizer="sgd", learning_rate=0.1, **options)
    source = open_data({"x": x}, Layout(trainer.data_inputs))
    return Fit(trainer, source, Order(batch_size=1, shuffle=False), folder=folder)


def files(fit: Fit) -> Run:
    assert fit.run is not None
    return fit.run


def state_after(x: Array) -> dict[str, Array]:
    trainer = ll.Trainer(quadratic(), optimizer="sgd", learning_rate=0.1)
    for row in x:
        trainer.step({"x": row[None]})
    return trainer.state_dict()


def equal(left: dict[str, Array], right: dict[str, Array]) -> bool:
    return all(np.array_equal(array, right[name]) for name, array in left.items() if name != "iteration")


def test_a_step_that_is_not_finite_raises_and_changes_nothing() -> None:
    trainer = ll.Trainer(quadratic(), optimizer="sgd", learning_rate=0.1)
    good, bad = ({"x": x[:2]} for x in (data(), data(bad=1)))
    trainer.step(good)
    before = trainer.state_dict()
    with pytest.raises(NotFiniteError, match="step 2: the loss must be finite, got nan"):
        trainer.step(bad, ["new_w"])
    assert trainer.steps == 1
    assert equal(trainer.state_dict(), before)
    assert np.isfinite(trainer.step(good).loss)
    with pytest.raises(InvalidInputError, match="on_nan requires one of"):
        ll.Trainer(quadratic(), optimizer="sgd", on_nan="hope")  # type: ignore[arg-type]


def test_steps_that_are_not_finite_can_be_left_out() -> None:
    trainer = ll.Trainer(quadratic(), optimizer="sgd", learning_rate=0.1, on_nan="skip")
    losses = [trainer.step({"x": row[None]}).loss for row in data(bad=3)]
    assert [np.isfinite(loss) for loss in losses] == [True, True, False, True, True, True]
    assert trainer.steps == STEPS
    assert equal(trainer.state_dict(), state_after(np.delete(data(), 2, axis=0)))


def test_steps_that_are_not_finite_can_be_ignored() -> None:
    trainer = ll.Trainer(quadratic(), optimizer="sgd", learning_rate=0.1, on_nan="ignore")
    for row in data(bad=3):
        trainer.step({"x": row[None]})
    assert np.isnan(trainer.state_dict()["w"]).any()


@pytest.mark.parametrize("save_every", [1, 2, 100])
def test_a_run_stops_and_its_checkpoint_stays(tmp_path: Path, save_every: int) -> None:
    with (
        run(tmp_path, data(bad=5)) as stopped,
        pytest.raises(NotFiniteError, match=r"step 5: the loss .* got nan.*the checkpoint .*checkpoint.safetensors"),
    ):
        stopped.go(1, save_every)
    last = 4 // save_every * save_every
    assert files(stopped).checkpoint.exists() == bool(last)
    # The samples are others now.
    told = pytest.warns(LstmLowerWarning, match="the same data as before") if last else contextlib.nullcontext()
    with told, run(tmp_path, data()) as resumed:
        assert resumed.trainer.steps == last
        resumed.go(1, save_every)
    assert equal(resumed.trainer.state_dict(), state_after(data()))
    assert [line["step"] for line in files(resumed).losses()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("there", [False, True])
def test_a_run_that_fails_before_its_first_step_leaves_nothing(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "runs" / "mine"
    if there:
        folder.mkdir(parents=True)
        (folder / "notes.txt").touch()
    with run(folder, data(bad=1)) as failed, pytest.raises(NotFiniteError):
        failed.go(1)
    left = [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))]
    assert left == (["runs", "runs/mine", "runs/mine/notes.txt"] if there else [])
    with run(folder, data()) as begun:
        failed.close()  # again, while another run has the folder
        with pytest.raises(InvalidInputError, match="another process trains"):
            run(folder, data())
        begun.go(1)
    assert len(files(begun).losses()) == STEPS


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    """The loss of the last step was finite; its update is not."""
    with run(tmp_path, data()) as stopped:
        stopped.trainer.learning_rate = 2e38
        with pytest.raises(NotFiniteError, match=r"after step 1 state 'w' must be finite.*was not yet written"):
            stopped.go(1, 1)
    assert not files(stopped).checkpoint.exists()


OTHER = """
import sys
from pathlib import Path
from tests.runtime.test_run import data, run
with run(Path(sys.argv[1]), data()) as other:
    print("open", flush=True)
    sys.stdin.read()
"""


def test_one_process_at_a_time(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(InvalidInputError, match="another process trains"):
            run(tmp_path, data())
        other.stdin.close()
    with run(tmp_path, data()) as mine:
        assert mine.go(1, 2)
        with pytest.raises(InvalidInputError, match="another process trains"):
            run(tmp_path, data())
    with run(tmp_path, data()) as again:
        assert again.resumed


def test_a_run_that_cannot_be_opened_lets_go_of_its_folder(tmp_path: Path) -> None:
    with run(tmp_path, data()) as first:
        first.go(1, 100)
    with pytest.raises(InvalidInputError, match="samples requires 6"):
        run(tmp_path, data()[:4])
    run(tmp_path, data()).close()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run(tmp_path, data()) as stopped:
        stopped.go(1, 2)
    kept = files(stopped).checkpoint.read_bytes()

    def full(*args: object, **kwargs: object) -> None:
        Path(str(args[1])).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with run(tmp_path, data()) as stopped, monkeypatch.context() as patch:
        patch.setattr(checkpoint._safetensors().numpy, "save_file", full)
        with pytest.raises(OSError, match=r"cannot be written.*No space left on device.*checkpoint .* is as it was"):
            stopped.go(2, 2)
    assert files(stopped).checkpoint.read_bytes() == kept
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {
        "best.safetensors",
        "checkpoint.safetensors",
        "checkpoint.safetensors.previous",
        "epochs.jsonl",
        "metrics.jsonl",
    }
    with run(tmp_path, data()) as resumed:
        assert resumed.go(2, 2)
    assert len(files(resumed).losses()) == 2 * STEPS


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {"epoch": "one", "batch": 0},
        {"epoch": 0, "batch": STEPS + 1, "history": []},
        {"epoch": -1, "batch": 0},
        {"epoch": 0, "batch": None, "history": []},
        {"sums": {"loss": [1.0]}},
        {"history": [3]},
        {"best": "first"},
        {"callbacks": [{}]},
    ],
)
def test_a_checkpoint_of_something_else(tmp_path: Path, notes: dict[str, object]) -> None:
    with run(tmp_path, data()) as first:
        first.go(1, 100)
    kept = checkpoint.read(files(first).checkpoint)[1]["notes"]
    plan = {name: value for name, value in kept.items() if name not in first.progress.notes()}
    first.trainer.save(files(first).checkpoint, {**(kept if notes else plan), **notes})
    with pytest.raises(InvalidInputError, match="a checkpoint of a run is required"):
        run(tmp_path, data())


@pytest.mark.parametrize("line", [b"{", b"[1]", b"{}", b'{"step": 1, "loss": "low"}', b"[" * 10**5, b"\xff"])
def test_a_log_that_somebody_wrote_into(tmp_path: Path, line: bytes) -> None:
    with run(tmp_path, data()) as first:
        first.go(1, 100)
        files(first).log.write_bytes(files(first).log.read_bytes() + line + b"\n")
        with pytest.raises(InvalidInputError, match=r"metrics.jsonl: line 7 requires a step and a loss"):
            files(first).losses()
    with run(tmp_path, data()) as second:
        assert [json.dumps(entry["step"]) for entry in files(second).losses()] == list("123456")
