"""Weights of a step that was traced with TensorFlow go back into Keras models, by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
old = pytest.importorskip("tf_keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

X = np.random.default_rng(0).random((4, 3)).astype(np.float32)
Y = np.random.default_rng(1).random((4, 2)).astype(np.float32)
SIGNATURE = [tf.TensorSpec((None, 3), name="x"), tf.TensorSpec((None, 2), name="y")]
packages = pytest.mark.parametrize("package", [keras, old], ids=["keras", "tf-keras"])


def built(package: Any, units: int = 3, first: str | None = None) -> Any:
    """Layers of equal shapes, one of them frozen, and one that follows the data."""
    layers = package.layers
    given = package.Input((3,))
    hidden = layers.BatchNormalization()(layers.Dense(3, trainable=False, name=first)(given))
    return package.Model(given, layers.Dense(2)(layers.Dense(units)(hidden)))


class Pair(keras.Model):
    """Two layers whose weights TensorFlow gives the same name."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.dense = [keras.layers.Dense(2) for _ in range(layers)]

    def call(self, x: Any) -> Any:
        for layer in self.dense:
            x = layer(x)
        return x


def initial(model: Any) -> list[Any]:
    """Values that differ among layers of one shape."""
    random = np.random.default_rng(2)
    model.set_weights([random.random(value.shape).astype(value.dtype) for value in model.get_weights()])
    return list(model.get_weights())


def traced(model: Any) -> Any:
    model.compile("adam", "mse")
    model.train_on_batch(X, Y)
    return tf.function(lambda x, y: model.train_step((x, y)), input_signature=SIGNATURE)


def trained(step: Any, steps: int = 2) -> ll.Trainer:
    trainer = ll.Trainer(step)
    for _ in range(steps):
        trainer.step({"x": X, "y": Y})
    return trainer


def equal(model: Any, values: list[Any], tolerance: float = 0) -> None:
    for variable, value in zip(model.get_weights(), values, strict=True):
        np.testing.assert_allclose(variable, value, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@packages
def test_weights_of_a_traced_train_step_go_back(package: Any) -> None:
    model = built(package)
    function = traced(model)
    start = initial(model)
    trainer = trained(ll.from_tensorflow(function))
    for _ in range(2):
        model.train_on_batch(X, Y)
    after = model.get_weights()
    model.set_weights(start)
    anew = built(package)
    for other in (model, anew):
        trainer.to_keras(other)
        equal(other, after, 1e-5)


@pytest.mark.slow
@packages
def test_an_uncertain_match_changes_nothing(package: Any) -> None:
    trainer = trained(ll.from_tensorflow(traced(built(package))))
    wider, named = built(package, 5), built(package, first="other")
    deeper = package.Sequential([package.Input((3,)), *(package.layers.Dense(3) for _ in range(4))])
    refusals = [(wider, "of shape [3, 3], got [3, 5]"), (named, "none for 'other/kernel'"), (deeper, "/kernel'")]
    for model, reason in refusals:
        start = initial(model)
        with pytest.raises(ll.InvalidInputError, match=re.escape(reason)):
            trainer.to_keras(model)
        equal(model, start)


class Loop:
    """A training loop over two models, one behind the other."""

    def __init__(self, package: Any, *names: str) -> None:
        self.package = package
        self.models = [self.network(name, units) for name, units in zip(names, (3, 2), strict=True)]
        self.variables = [variable for model in self.models for variable in model.trainable_variables]
        self.optimizer = package.optimizers.SGD(0.1, momentum=0.9)
        self.optimizer.build(self.variables)
        self.train = tf.function(self.step, input_signature=SIGNATURE)

    def network(self, name: str, units: int) -> Any:
        layers = [self.package.layers.Dense(units, name=f"{name}{number}") for number in ("", "_1")]
        return self.package.Sequential([self.package.Input((3,)), *layers], name=f"of_{name}")

    def step(self, x: Any, y: Any) -> Any:
        first, second = self.models
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((second(first(x)) - y) ** 2)
        gradients = tape.gradient(loss, self.variables)
        self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))
        return {"loss": loss}

    def save(self, path: Path) -> None:
        module = tf.Module()
        module.kept = [*self.models, *self.variables, self.optimizer]
        module.slots = list(self.optimizer.variables)
        tf.saved_model.save(module, str(path), signatures={"train": self.train})


@pytest.mark.slow
@packages
def test_a_saved_loop_that_trains_two_models(package: Any, tmp_path: Path) -> None:
    loop = Loop(package, "first", "second")
    starts = [initial(model) for model in loop.models]
    loop.save(tmp_path)
    trainer = trained(ll.from_tensorflow(tmp_path, signature="train"))
    for _ in range(2):
        loop.train(X, Y)
    for model, start in zip(loop.models, starts, strict=True):
        after = model.get_weights()
        model.set_weights(start)
        trainer.to_keras(model)
        equal(model, after, 1e-5)


@pytest.mark.slow
@packages
def test_two_models_of_the_same_names_are_refused(package: Any) -> None:
    loop = Loop(package, "same", "same")
    trainer = trained(ll.from_tensorflow(loop.train))
    for model in loop.models:
        start = initial(model)
        with pytest.raises(ll.InvalidInputError, match=r"kernel_1' for '(of_same/)?same/kernel'"):
            trainer.to_keras(model)
        equal(model, start)


@pytest.mark.slow
def test_subclassed_models_have_their_paths() -> None:
    model = Pair(2)
    model(X)
    function = traced(model)
    start = initial(model)
    trainer = trained(ll.from_tensorflow(function))
    assert {variable.path for variable in model.weights} < {pair.variable for pair in trainer.state.pairs}
    for _ in range(2):
        model.train_on_batch(X, Y)
    after = model.get_weights()
    model.set_weights(start)
    trainer.to_keras(model)
    equal(model, after, 1e-5)


def descent(model: Any) -> Any:
    """A step of plain gradient descent."""

    def step(x: Any, y: Any) -> Any:
        weights = [variable.value for variable in model.trainable_variables]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}

    return tf.function(step, input_signature=SIGNATURE)


@pytest.mark.slow
def test_files_have_names_of_tensorflow(tmp_path: Path) -> None:
    model = Pair(2)
    model(X)
    module = tf.Module()
    module.kept, module.train = model, descent(model)
    tf.saved_model.save(module, str(tmp_path))
    trainer = trained(ll.from_tensorflow(tmp_path))
    start = initial(model)
    with pytest.raises(ll.InvalidInputError, match="kernel' for 2 variables"):
        trainer.to_keras(model)
    equal(model, start)
