"""`fit`, `evaluate` and `predict`: what they return, what they leave alone, how they end and go on."""

from __future__ import annotations

import json
import math
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerWarning, NotFiniteError, UnsupportedOpError
from lstm_lower.runtime.training import checkpoint, rates
from lstm_lower.runtime.training.callbacks import Callback, EarlyStopping, LearningRate, ReduceOnPlateau
from tests.support.training_models import quadratic

Array = np.ndarray[Any, Any]

ROWS = 10
# Made by an epoch that is one seed's and one epoch's alone.
X = np.random.default_rng(0).standard_normal((ROWS, 3)).astype(np.float32)
TEST = np.random.default_rng(1).standard_normal((7, 3)).astype(np.float32)


def trainer(**options: Any) -> ll.Trainer:
    return ll.Trainer(quadratic(), **{"optimizer": "adam", "learning_rate": 0.1, **options})


def equal(left: ll.Trainer, right: ll.Trainer) -> bool:
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(np.array_equal(array, theirs[name]) for name, array in ours.items())


def loss_of(values: dict[str, Array], x: Array) -> float:
    """The model's loss, by hand."""
    return float(((values["w"] - x) ** 2).sum() / 2 + np.abs(values["b"]).sum())


def test_fit_is_a_loop_of_steps() -> None:
    mine, theirs = trainer(), trainer()
    history = mine.fit({"x": X}, epochs=3, batch_size=4, seed=5)
    for epoch in range(3):
        order = np.random.default_rng([5, epoch]).permutation(ROWS)
        losses = [theirs.step({"x": X[order[i : i + 4]]}).loss for i in range(0, ROWS, 4)]
        assert history["loss"][epoch] == pytest.approx(np.average(losses, weights=[4, 4, 2]), rel=1e-12)
    assert equal(mine, theirs)
    assert [logs["epoch"] for logs in history.epochs] == [1, 2, 3]
    assert history["learning_rate"] == pytest.approx([0.1] * 3)
    assert math.isnan(history["val_loss"][0])
    assert "val_loss" not in history
    assert {"epoch", "loss", "learning_rate"} <= set(history)
    assert history.stopped is None


def test_validation_changes_nothing() -> None:
    mine, theirs = trainer(), trainer()
    after: list[float] = []

    class Note(Callback):
        def after_epoch(self, fit: Any, logs: dict[str, float]) -> None:
            after.append(np.average([loss_of(mine.state_dict(), TEST[i : i + 4]) for i in (0, 4)], weights=[4, 3]))

    history = mine.fit({"x": X}, validation={"x": TEST}, epochs=3, batch_size=4, callbacks=[Note()])
    theirs.fit({"x": X}, epochs=3, batch_size=4)
    assert equal(mine, theirs)
    np.testing.assert_allclose(history["val_loss"], after, rtol=1e-5)
    assert mine.evaluate({"x": TEST}, batch_size=4) == {"loss": history["val_loss"][-1]}
    assert history.best is not None
    assert history.best.value == min(history["val_loss"])


def test_predictions_in_the_order_of_the_data() -> None:
    mine = trainer()
    mine.fit({"x": X}, batch_size=4)
    expected = ((mine.state_dict()["w"] - TEST) ** 2).sum(axis=1)
    for data in (TEST, {"x": TEST}, (TEST,), [(TEST[:3],), (TEST[3:],)], lambda: [{"x": TEST}]):
        np.testing.assert_allclose(mine.predict(data, batch_size=3)["distance"], expected, rtol=1e-5)


class Noted(Callback):
    """Counts its epochs."""

    def __init__(self) -> None:
        self.epochs = 0

    def after_epoch(self, fit: Any, logs: dict[str, float]) -> None:
        self.epochs += 1

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state: Any) -> None:
        self.epochs = state["epochs"]


def callbacks() -> list[Callback]:
    return [
        LearningRate(rates.cosine(24, warmup=3)),
        EarlyStopping(5, restore_best=False),
        ReduceOnPlateau(patience=1, monitor="loss", min_delta=0.3),
        Noted(),
    ]


class Stop(Exception):  # noqa: N818 (no error)
    pass


class StopAt(Callback):
    """Ends the process, as it were, at a step, or in the middle of an epoch's end."""

    def __init__(self, step: int, where: str) -> None:
        self._step, self._where = step, where

    def after_step(self, fit: Any, values: dict[str, float]) -> None:
        if self._where == "step" and fit.trainer.steps == self._step:
            raise Stop

    def after_epoch(self, fit: Any, logs: dict[str, float]) -> None:
        if self._where == "epoch" and fit.trainer.steps >= self._step:
            raise Stop


@pytest.mark.slow
@pytest.mark.parametrize("where", ["step", "epoch"])
@pytest.mark.parametrize("step", [2, 5, 12, 14])
def test_a_run_that_goes_on_equals_one_that_was_left_alone(step: int, where: str, tmp_path: Path) -> None:
    def fit(folder: Path, *more: Callback) -> tuple[ll.Trainer, Any]:
        mine = trainer()
        options = {"validation": {"x": TEST}, "epochs": 6, "batch_size": 3, "save_every": 3, "folder": folder}
        return mine, mine.fit({"x": X}, callbacks=[*callbacks(), *more], **options)

    whole, history = fit(tmp_path / "whole")
    with pytest.raises(Stop):
        fit(tmp_path / "stopped", StopAt(step, where))
    again, resumed = fit(tmp_path / "stopped")
    assert equal(whole, again)
    assert resumed == history
    for name in ("checkpoint.safetensors", "best.safetensors", "metrics.jsonl", "epochs.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "stopped" / name).read_bytes()
    notes = checkpoint.read(tmp_path / "stopped" / "checkpoint.safetensors")[1]["notes"]
    assert {"kind": "Noted", "state": {"epochs": 6}} in notes["callbacks"]
    assert len((tmp_path / "whole" / "epochs.jsonl").read_text().splitlines()) == 6


def test_control_c_ends_the_step_and_saves(tmp_path: Path) -> None:
    class Interrupt(Callback):
        def after_step(self, fit: Any, values: dict[str, float]) -> None:
            if fit.trainer.steps == 3:
                signal.raise_signal(signal.SIGINT)

    mine, whole = trainer(), trainer()
    before = signal.getsignal(signal.SIGINT)  # a shell ignores it for what runs in the background
    with pytest.raises(KeyboardInterrupt):
        mine.fit({"x": X}, epochs=4, batch_size=5, callbacks=[Interrupt()], folder=tmp_path)
    assert mine.steps == 3
    assert signal.getsignal(signal.SIGINT) is before
    again = trainer()
    again.fit({"x": X}, epochs=4, batch_size=5, folder=tmp_path)
    whole.fit({"x": X}, epochs=4, batch_size=5)
    assert equal(again, whole)


def test_in_another_thread() -> None:
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(trainer().fit({"x": X})))
    thread.start()
    thread.join(60)
    assert len(done) == 1


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 3, "batch_size": 4, "save_every": 2}
    whole, again = trainer(), trainer()
    whole.fit({"x": X}, folder=tmp_path / "whole", **options)
    trainer().fit({"x": X}, folder=tmp_path / "run", **{**options, "epochs": 2})
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(LstmLowerWarning, match="checkpoint.safetensors.previous; the run goes on from it"):
        again.fit({"x": X}, folder=tmp_path / "run", **options)
    assert equal(whole, again)
    path.write_bytes(b"")
    checkpoint.previous_path(path).write_bytes(b"")
    with pytest.raises(InvalidInputError, match="a complete checkpoint is required, got a damaged one"):
        trainer().fit({"x": X}, folder=tmp_path / "run", **options)


def test_what_is_left_out_is_no_part_of_the_mean() -> None:
    bad = X.copy()
    bad[4] = np.nan
    skipping = trainer(on_nan="skip")
    history = skipping.fit({"x": bad}, batch_size=2, shuffle=False)
    assert np.isfinite(history["loss"]).all()
    with pytest.raises(NotFiniteError, match="step 3: the loss must be finite"):
        trainer().fit({"x": bad}, batch_size=2, shuffle=False)


def test_an_epoch_that_is_left_out_is_told() -> None:
    with pytest.warns(LstmLowerWarning, match="epoch 1 requires a step whose loss is finite, got none"):
        history = trainer(on_nan="skip").fit({"x": np.full_like(X, np.nan)}, batch_size=2)
    assert history.epochs == [{"epoch": 1, "learning_rate": 0.1}]


def test_weights_that_an_earlier_step_spoilt_are_named() -> None:
    step = trainer()
    step.put_state(
        {
            name: array + np.float32(np.inf) if array.dtype.kind == "f" else array
            for name, array in step.held_state().items()
        }
    )
    with pytest.raises(NotFiniteError, match=r"step 1: the loss must be finite.*already held such numbers"):
        step.step({"x": X})


def random_step() -> ir.Model:
    """A step whose loss draws, and that records no evaluation."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    step (float[N, 3] x, float[3] w) => (float loss, float[3] grad_w) {
        noise = RandomNormalLike (x)
        noisy = Add (x, noise)
        residue = Sub (w, noisy)
        squares = Mul (residue, residue)
        loss = ReduceSum <keepdims = 0> (squares)
        axis = Constant <value_ints = [0]> ()
        grad_w = ReduceSum <keepdims = 0> (residue, axis)
    }"""
    return ir.from_proto(onnx.parser.parse_model(text))


def test_a_step_that_nothing_is_known_of_how_to_evaluate() -> None:
    mine = ll.Trainer(random_step(), optimizer="sgd", initial_values={"w": np.zeros(3, np.float32)})
    mine.fit({"x": X})
    with pytest.raises(UnsupportedOpError, match=r"RandomNormalLike.*ll\.from_keras"):
        mine.evaluate({"x": X})
    with pytest.raises(UnsupportedOpError, match="RandomNormalLike"):
        mine.fit({"x": X}, validation={"x": X})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs requires a whole number, at least 1, got 0"),
        ({"save_every": 0}, "save_every requires a whole number, at least 1"),
        ({"batch_size": 0}, "batch_size requires a whole number, at least 1, got 0"),
        ({"monitor": "val_loss"}, r"monitor requires one of \['loss'\], got 'val_loss'"),
        ({"monitor": "accuracy"}, "mode requires 'min' or 'max' for the monitor 'accuracy', got none"),
        ({"metrics": ["distance"]}, "metrics require scalars, got 'distance' of shape"),
        ({"metrics": ["weather"]}, "output 'weather' must be one of"),
        ({"callbacks": [EarlyStopping(1, monitor="val_loss")]}, r"monitor requires one of \['loss'\]"),
        ({"pad": {"y": 0.0}}, "pad requires names of data inputs"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        trainer().fit({"x": X}, **options)


def _line() -> ir.Model:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    line (float[N, 3] x) => (float[N] y) <float[3] w = {1, 2, 3}> { y = MatMul (x, w) }"""
    return ir.from_proto(onnx.parser.parse_model(text))


def test_other_callbacks_are_refused_where_a_run_goes_on(tmp_path: Path) -> None:
    trainer().fit({"x": X}, callbacks=[Noted()], folder=tmp_path)
    with pytest.raises(InvalidInputError, match=r"callbacks require \['Noted'\], as the run there has them, got \[\]"):
        trainer().fit({"x": X}, epochs=2, folder=tmp_path)


def test_streams_can_be_trained_on_and_gone_on_with(tmp_path: Path) -> None:
    def batches(epoch: int) -> Iterator[dict[str, Array]]:
        for start in range(0, ROWS, 4):
            yield {"x": X[start : start + 4] * (epoch + 1)}

    whole, again = trainer(), trainer()
    whole.fit(batches, epochs=3)
    with pytest.raises(Stop):
        trainer().fit(batches, epochs=3, folder=tmp_path, save_every=2, callbacks=[StopAt(5, "step")])
    again.fit(batches, epochs=3, folder=tmp_path, save_every=2)
    assert equal(whole, again)
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [
        *range(1, 10)
    ]


def test_a_model_without_gradients_says_what_it_needs() -> None:
    with pytest.raises(InvalidModelError, match=r"ll\.from_onnx.*state=TrainingState"):
        ll.Trainer(_line())


def test_what_a_trainer_is_can_be_read() -> None:
    mine = trainer()
    mine.fit({"x": X})
    text = repr(mine)
    assert "inputs: x float32[N, 3]" in text
    assert "loss: loss" in text
    assert "weights: 2 of 20 bytes\n        Sub: w [3]\n        Abs: b [2]\n" in text
    assert "learning rate: 0.1" in text
    assert "steps: 1\n" in text
    assert "CPUExecutionProvider" in text


def test_control_c_while_a_run_evaluates(tmp_path: Path) -> None:
    """The epoch is evaluated again; nothing of it is counted twice."""
    interrupts: list[bool] = []

    def held_out(epoch: int) -> Iterator[dict[str, Array]]:
        for start in (0, 3, 5):
            if interrupts and start == 3:
                interrupts.clear()
                signal.raise_signal(signal.SIGINT)
            yield {"x": TEST[start : start + 3]}

    def fit(folder: Path) -> Any:
        mine = trainer()
        return mine.fit({"x": X}, validation=held_out, epochs=3, batch_size=4, folder=folder)

    history = fit(tmp_path / "whole")
    interrupts.append(True)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run")
    assert fit(tmp_path / "run") == history
    for name in ("checkpoint.safetensors", "metrics.jsonl", "epochs.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_another_window_is_refused_where_a_run_goes_on(tmp_path: Path) -> None:
    trainer().fit({"x": X}, folder=tmp_path)
    with pytest.raises(InvalidInputError, match="window requires 1, as the run there has it, got 2"):
        trainer().fit({"x": X}, epochs=2, folder=tmp_path, window=2)


def test_a_validation_that_cannot_be_complete_is_refused_at_once() -> None:
    mine = trainer()
    with pytest.raises(InvalidInputError, match="data requires at least one batch"):
        mine.fit({"x": X}, validation={"x": TEST[:0]})
    assert mine.steps == 0


@pytest.mark.parametrize("part", ["data", "validation"])
def test_batches_that_can_be_read_once_are_refused_before_the_first_step(part: str) -> None:
    once, again = iter([{"x": X}]), {"x": X}
    made = trainer()
    with pytest.raises(InvalidInputError, match="read again in every epoch"):
        made.fit(once if part == "data" else again, validation=again if part == "data" else once, epochs=2)
    assert made.steps == 0
