"""Callback objects of Keras in `fit`: epochs, rates, weights and files are those of Keras' own `fit`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, LstmLowerWarning
from lstm_lower.runtime.training.keras_callbacks import translated

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

RNG = np.random.default_rng(0)
X, TEST = RNG.standard_normal((24, 3)).astype(np.float32), RNG.standard_normal((12, 3)).astype(np.float32)
Y, HELD = (X.sum(1, keepdims=True) > 0).astype(np.float32), (TEST.sum(1, keepdims=True) > 0).astype(np.float32)
CALLBACKS = keras.callbacks


def compiled(rate: float = 0.5, seed: int = 0) -> Any:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1, "sigmoid")])
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), "binary_crossentropy", metrics=["accuracy"])
    return model


def both(callbacks: Any, epochs: int = 12, **options: Any) -> tuple[Any, Any, ll.Trainer, Any]:
    """A model that Keras has trained and its history; a trainer and history of ours, by the same kinds of callbacks."""
    model, mine = compiled(**options), {"x": TEST, "y": HELD}
    trainer = ll.Trainer(ll.from_keras(model))
    given: dict[str, Any] = {"epochs": epochs, "batch_size": 8, "shuffle": False}
    history = trainer.fit({"x": X, "y": Y}, validation=mine, callbacks=callbacks(), **given)
    given |= {"validation_data": (TEST, HELD), "validation_batch_size": 8, "verbose": 0}
    theirs = model.fit(X, Y, callbacks=callbacks(), **given)
    return model, theirs, trainer, history


def same_weights(model: Any, trainer: ll.Trainer) -> None:
    twin = keras.models.clone_model(model)
    trainer.to_keras(twin)
    for theirs, ours in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=5e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"patience": 2, "min_delta": 0.01},
        {"patience": 0, "restore_best_weights": True},
        {"patience": 1, "restore_best_weights": True, "start_from_epoch": 4},
        {"monitor": "val_accuracy", "patience": 2, "restore_best_weights": True},
        {"monitor": "loss", "patience": 3, "mode": "max", "restore_best_weights": True},
        {"patience": 2, "baseline": 1e-3},
        {"monitor": "val_accuracy", "patience": 2, "min_delta": 0.1, "baseline": 0.95, "restore_best_weights": True},
    ],
)
def test_early_stopping(options: dict[str, Any]) -> None:
    model, theirs, trainer, ours = both(lambda: [CALLBACKS.EarlyStopping(**options)], rate=2.0)
    assert len(ours.epochs) == len(theirs.epoch)
    assert (ours.stopped is not None) == (len(theirs.epoch) < 12)
    for name in ("loss", "val_loss", "accuracy", "val_accuracy"):
        np.testing.assert_allclose(ours[name], theirs.history[name], rtol=1e-3, atol=1e-5)
    same_weights(model, trainer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1, "factor": 0.5, "min_delta": 0.01},
        {"patience": 0, "factor": 0.5, "cooldown": 2, "min_lr": 0.4},
        {"patience": 2, "cooldown": 1, "monitor": "val_accuracy"},
    ],
)
def test_plateaus(options: dict[str, Any]) -> None:
    model, theirs, trainer, ours = both(lambda: [CALLBACKS.ReduceLROnPlateau(**options)], rate=3.0)
    np.testing.assert_allclose(ours["learning_rate"], theirs.history["learning_rate"], rtol=1e-6)
    assert min(ours["learning_rate"]) < 3.0
    same_weights(model, trainer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule", [lambda epoch, rate: rate * 0.7 if epoch > 1 else rate, lambda epoch: 0.1 / (1 + epoch)]
)
def test_schedules(schedule: Any) -> None:
    model, theirs, trainer, ours = both(lambda: [CALLBACKS.LearningRateScheduler(schedule)], epochs=4)
    np.testing.assert_allclose(ours["learning_rate"], theirs.history["learning_rate"], rtol=1e-6)
    same_weights(model, trainer)


def test_a_schedule_of_a_run_that_goes_on(tmp_path: Path) -> None:
    """A rate that is multiplied at an epoch's beginning is not multiplied again in its middle."""
    step = ll.from_keras(compiled())
    scheduler = CALLBACKS.LearningRateScheduler(lambda _, rate: rate * 0.5)
    given: dict[str, Any] = {"batch_size": 8, "callbacks": [scheduler], "save_every": 1}
    whole = ll.Trainer(step).fit({"x": X, "y": Y}, epochs=3, **given)

    class Interrupted(ll.runtime.training.callbacks.Callback):  # type: ignore[misc]
        def after_step(self, fit: Any, _values: Any) -> None:
            if fit.trainer.steps == 5:
                raise RuntimeError("enough")

    broken = {**given, "callbacks": [scheduler, Interrupted()]}
    with pytest.raises(RuntimeError, match="enough"):
        ll.Trainer(step).fit({"x": X, "y": Y}, epochs=3, folder=tmp_path, **broken)
    assert ll.Trainer(step).fit({"x": X, "y": Y}, epochs=3, folder=tmp_path, **given) == whole


@pytest.mark.slow
def test_checkpoints_with_a_model_are_keras_files(tmp_path: Path) -> None:
    folders = [tmp_path / "theirs", tmp_path / "ours"]
    names = ["{epoch:02d}-{val_loss:.2f}.weights.h5", "best.keras", "{epoch}-{batch}.weights.h5"]
    model, mine = compiled(rate=2.0), compiled(rate=2.0)
    trainer = ll.Trainer(ll.from_keras(mine))

    def callbacks(folder: Path) -> list[Any]:
        return [
            CALLBACKS.ModelCheckpoint(folder / names[0], save_weights_only=True),
            CALLBACKS.ModelCheckpoint(folder / names[1], save_best_only=True, initial_value_threshold=10.0),
            CALLBACKS.ModelCheckpoint(folder / names[2], save_weights_only=True, save_freq=4),
        ]

    given: dict[str, Any] = {"epochs": 4, "batch_size": 8, "shuffle": False}
    model.fit(X, Y, validation_data=(TEST, HELD), verbose=0, callbacks=callbacks(folders[0]), **given)
    ours = callbacks(folders[1])
    for each in ours:
        each.set_model(mine)
    trainer.fit({"x": X, "y": Y}, validation={"x": TEST, "y": HELD}, callbacks=ours, **given)
    files = [{path.name for path in folder.iterdir()} for folder in folders]
    assert files[0] == files[1]
    assert len(files[0]) == 8
    left, right = (keras.saving.load_model(folder / "best.keras") for folder in folders)
    pairs = [*zip(left.get_weights(), right.get_weights(), strict=True)]
    pairs += [(a.numpy(), b.numpy()) for a, b in zip(left.optimizer.variables, right.optimizer.variables, strict=True)]
    for theirs, written in pairs:
        np.testing.assert_allclose(written, theirs, rtol=5e-3, atol=1e-3)


def test_checkpoints_without_a_model_are_a_trainers(tmp_path: Path) -> None:
    step = ll.from_keras(compiled())
    trainer, again = ll.Trainer(step), ll.Trainer(step)
    checkpoint = CALLBACKS.ModelCheckpoint(tmp_path / "{epoch}.weights.h5", save_weights_only=True)
    with pytest.warns(LstmLowerWarning, match=r"epoch}.safetensors', which Trainer.resume reads"):
        trainer.fit({"x": X, "y": Y}, epochs=2, callbacks=[checkpoint])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.safetensors", "2.safetensors"]
    again.resume(tmp_path / "2.safetensors")
    for name, array in trainer.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], array)


def test_a_loss_that_is_not_finite() -> None:
    step = ll.from_keras(compiled())
    ll.Trainer(step).fit({"x": X, "y": Y}, callbacks=[CALLBACKS.TerminateOnNaN()])
    with pytest.raises(InvalidInputError, match="TerminateOnNaN requires Trainer"):
        ll.Trainer(step, on_nan="ignore").fit({"x": X, "y": Y}, callbacks=[CALLBACKS.TerminateOnNaN()])


def test_other_callbacks_are_refused_by_name() -> None:
    class Mine(CALLBACKS.Callback):  # type: ignore[misc,name-defined]
        pass

    again: Any = type("EarlyStopping", (CALLBACKS.EarlyStopping,), {})
    for callback, way in (
        (CALLBACKS.CSVLogger("log.csv"), "got CSVLogger; .*epochs.jsonl"),
        (Mine(), "got Mine; a subclass of lstm_lower.*Callback"),
        (again(), "got EarlyStopping"),
    ):
        with pytest.raises(InvalidInputError, match=way):
            translated([callback])
    with pytest.raises(InvalidInputError, match="requires mode='min' or 'max' for the monitor 'val_something'"):
        translated([CALLBACKS.EarlyStopping("val_something")])


def test_metrics_are_better_as_keras_says() -> None:
    needed = {"num_classes": 2, "target_class_ids": [0], "specificity": 0.5, "sensitivity": 0.5, "recall": 0.5}
    needed["precision"] = 0.5
    compared = 0
    for kind in vars(keras.metrics).values():
        if not inspect.isclass(kind) or kind in (keras.metrics.Metric, keras.metrics.MeanMetricWrapper):
            continue
        wanted = inspect.signature(kind).parameters.values()
        required = [each.name for each in wanted if each.default is inspect.Parameter.empty]
        metric = kind(**{name: needed[name] for name in required if name in needed})
        if (direction := getattr(metric, "_direction", None)) is not None:
            (callback,) = translated([CALLBACKS.EarlyStopping(f"val_{metric.name}")])
            assert callback._watched.watch.mode == {"up": "max", "down": "min"}[direction], metric.name
            compared += 1
    assert compared > 30


def test_objects_of_tf_keras() -> None:
    legacy = pytest.importorskip("tf_keras").callbacks
    stopping, plateau, checkpoint, schedule = translated(
        [
            legacy.EarlyStopping("val_acc", min_delta=0.1, patience=2, start_from_epoch=3),
            legacy.ReduceLROnPlateau("val_loss", cooldown=2, min_lr=0.1),
            legacy.ModelCheckpoint("best.safetensors", "val_loss", save_best_only=True),
            legacy.LearningRateScheduler(lambda epoch: 1 / (1 + epoch)),
        ]
    )
    watch = stopping._watched.watch
    assert (watch.mode, watch.min_delta, watch.after, stopping.patience) == ("max", 0.1, 3, 2)
    assert (plateau._cooldown, plateau._least, plateau._patience) == (2, 0.1, 10)
    assert checkpoint._threshold is None
    assert schedule._rate(1, 7.0) == 0.5
