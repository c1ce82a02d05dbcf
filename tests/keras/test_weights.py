"""Trained weights go back into Keras models: the same, loaded, built anew; and through safetensors."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from tests.support.tensorflow_programs import run

keras = pytest.importorskip("keras")
pytest.importorskip("tensorflow")
safetensors = pytest.importorskip("safetensors.numpy")

X = np.random.default_rng(0).standard_normal((8, 5, 3)).astype(np.float32)
Y = np.arange(8, dtype=np.float32)[:, None] / 8


@contextlib.contextmanager
def keras_own_warnings() -> Iterator[None]:
    """Keras' files are written in a way that numpy will not go on with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def built(units: int = 4) -> Any:
    """Two equal recurrent layers, running statistics, dropout."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((5, 3)),
            layers.LSTM(units, return_sequences=True),
            layers.LSTM(units),
            layers.BatchNormalization(),
            layers.Dropout(0.25),
            layers.Dense(1),
        ]
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[ll.Trainer, Any, Path]:
    model = built()
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    with keras_own_warnings():
        model.save(path)
    trainer = ll.Trainer(ll.from_keras(model, "mse", keras.optimizers.Adam(0.01)))
    for _ in range(3):
        trainer.step({"x": X, "y": Y})
    return trainer, model, path


def expected(trainer: ll.Trainer) -> Any:
    (predicted,) = trainer.predict({"x": X}).values()
    return predicted


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["same", "loaded", "anew"])
def test_weights_go_back(kind: str, trained: tuple[ll.Trainer, Any, Path]) -> None:
    trainer, same, path = trained
    with keras_own_warnings():
        model = {"same": lambda: same, "loaded": lambda: keras.models.load_model(path), "anew": built}[kind]()
    if kind == "anew":
        assert {x.path for x in model.weights} != {x.path for x in same.weights}
    before = model(X).numpy()
    trainer.to_keras(model)
    np.testing.assert_allclose(model(X).numpy(), expected(trainer), rtol=1e-5, atol=1e-6)
    assert np.abs(model(X).numpy() - before).max() > 1e-3


def test_an_uncertain_match_is_refused(trained: tuple[ll.Trainer, Any, Path]) -> None:
    trainer, *_ = trained
    wider, deeper = built(6), keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(4), keras.layers.Dense(1)])
    before = [x.numpy() for x in wider.weights]
    with pytest.raises(ll.InvalidInputError, match=re.escape("of shape [3, 16], got [3, 24]")):
        trainer.to_keras(wider)
    for variable, value in zip(wider.weights, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    with pytest.raises(ll.InvalidInputError, match="model requires the variables sequential"):
        trainer.to_keras(deeper)
    with pytest.raises(ll.InvalidInputError, match="a built model of Keras 3 or tf-keras"):
        trainer.to_keras({})


@pytest.mark.slow
def test_safetensors_have_the_names_of_keras(trained: tuple[ll.Trainer, Any, Path], tmp_path: Path) -> None:
    trainer, model, _ = trained
    trainer.save_weights(tmp_path / "weights.safetensors")
    held = safetensors.load_file(tmp_path / "weights.safetensors")
    assert set(held) == {variable.path for variable in model.weights}
    other = ll.Trainer(ll.from_keras(model, "mse", keras.optimizers.Adam(0.01)))
    moments = {pair.input for pair in other.state.pairs if "momentum" in pair.input}
    assert moments
    other.load_weights(tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(expected(other), expected(trainer))
    for name in moments:
        assert not other.state_dict()[name].any()
    safetensors.save_file({"kernel": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ll.InvalidInputError, match="a file with '"):
        other.load_weights(tmp_path / "other.safetensors")


class Spare(keras.layers.Dense):
    """A layer with a weight that it does not use, such as one for a pretraining that is over."""

    def build(self, shape: Any) -> None:
        super().build(shape)
        self.spare = self.add_weight(shape=(3,), initializer="ones", name="spare")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_a_weight_that_nothing_reads_stays_as_it_is() -> None:
    def made() -> Any:
        return keras.Sequential([keras.Input((3,)), Spare(2), keras.layers.Dense(1)])

    model, other = made(), made()
    trainer = ll.Trainer(ll.from_keras(model, "mse", keras.optimizers.SGD(0.1)))
    trainer.step({"x": X[:, 0], "y": Y})
    for variables in (model, other):
        variables.layers[0].spare.assign([1, 2, 3])
        trainer.to_keras(variables)
        np.testing.assert_array_equal(variables.layers[0].spare.numpy(), [1, 2, 3])
        (predicted,) = trainer.predict({"x": X[:, 0]}).values()
        np.testing.assert_allclose(variables(X[:, 0]).numpy(), predicted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_training_goes_on_in_keras(ending: str, tmp_path: Path) -> None:
    """Three steps here and three there are six there."""
    model = keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(4), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.optimizer.build(model.trainable_variables)
    before = [variable.numpy() for variable in (*model.weights, *model.optimizer.variables)]
    trainer = ll.Trainer(ll.from_keras(model))
    for _ in range(3):
        trainer.step({"x": X, "y": Y})
    for _ in range(6):
        model.train_on_batch(X, Y)
    six = [variable.numpy() for variable in (*model.weights, *model.optimizer.variables)]
    for variable, value in zip((*model.weights, *model.optimizer.variables), before, strict=True):
        variable.assign(value)
    trainer.to_keras(model, model.optimizer)
    path = tmp_path / f"model{ending}"
    with keras_own_warnings():
        (model.save_weights if ending == ".weights.h5" else model.save)(path)
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    run("keras", "go_on", path, tmp_path)
    with np.load(tmp_path / "after.npz") as after:
        for number, value in enumerate(six):
            np.testing.assert_allclose(after[f"arr_{number}"], value, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_training_goes_on_with_an_optimizer_that_has_never_trained() -> None:
    """It gets what the step's has of each weight, averages among that, which Keras' `fit` ends with."""

    def compiled() -> Any:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5), "mse")
        return model

    x, (model, other) = X[:, 0], (compiled(), compiled())
    trainer = ll.Trainer(ll.from_keras(model))
    trainer.fit({"x": x, "y": Y}, epochs=3, batch_size=len(x))
    trainer.to_keras(model, model.optimizer)
    for _ in range(3):
        other.train_on_batch(x, Y)
    for _ in range(3):
        for each in (model, other):
            each.train_on_batch(x, Y)
    for each in (model, other):
        each.optimizer.finalize_variable_values(each.trainable_variables)
    for variable, expected in zip(model.weights, other.weights, strict=True):
        np.testing.assert_allclose(variable.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_an_optimizer_of_another_kind_is_refused() -> None:
    model = built()
    trainer = ll.Trainer(ll.from_keras(model, "mse", keras.optimizers.Adam(0.01)))
    before = [variable.numpy() for variable in model.variables]
    other = keras.optimizers.SGD(0.1, momentum=0.9)
    with pytest.raises(ll.InvalidInputError, match="optimizer requires one of Keras 3 or tf-keras that is built"):
        trainer.to_keras(model, "adam")
    other.build(model.trainable_variables)
    trainer.step({"x": X, "y": Y})
    with pytest.raises(ll.InvalidInputError, match="optimizer requires one like that of the step"):
        trainer.to_keras(model, other)
    assert all((a == b.numpy()).all() for a, b in zip(before, model.variables, strict=True))
