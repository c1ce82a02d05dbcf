"""Models of the package tf-keras, in its own training loop and in ours."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")
old = pytest.importorskip("tf_keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

from tests.support.keras_models import close, data  # noqa: E402

L = old.layers
WORDS = np.tile(np.array([[1, 1, 2, 3, 1]], np.int32), (4, 1))
IMAGES = np.random.default_rng(0).random((4, 8, 8, 3), np.float32)


def same_training(model: Any, x: Any, y: Any, steps: int = 3, **options: Any) -> ll.Trainer:
    """Losses, metrics and weights of some steps, and weights that go back into the model."""
    step = ll.from_keras(model, **options)
    names = [value.name for value in step.graph.input if value.name.partition("/")[0] in ("x", "y")]
    trainer = ll.Trainer(step)
    feeds = dict(zip(names, [*(x if isinstance(x, list) else [x]), *(y if isinstance(y, list) else [y])], strict=True))
    for _ in range(steps):
        model.reset_metrics()
        logs = model.train_on_batch(x, y, return_dict=True)
        measured = [name for name in logs if name != "loss"]
        result = trainer.step(feeds, measured)
        assert result.loss == pytest.approx(float(logs["loss"]), rel=1e-5)
        for name in measured:
            np.testing.assert_allclose(result.outputs[name], logs[name], rtol=1e-5, atol=1e-6)
    wanted = model.get_weights()
    model.set_weights([np.zeros_like(each) for each in wanted])
    trainer.to_keras(model)
    for variable, value in zip(model.weights, wanted, strict=True):
        close(variable.numpy(), value, what=variable.name)
    return trainer


def recurrent() -> Any:
    x = old.Input((3, 2))
    h = L.Bidirectional(L.LSTM(3))(L.Masking()(x))
    h = L.BatchNormalization()(h)
    return old.Model(x, L.Dense(3, activation="softmax", kernel_regularizer="l2")(h))


def dense() -> Any:
    return old.Sequential([L.Input((5,)), L.Dense(2)])


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "Adam": lambda: old.optimizers.Adam(0.05, clipnorm=0.1),
    "Adagrad": lambda: old.optimizers.Adagrad(0.1),
    "RMSprop": lambda: old.optimizers.legacy.RMSprop(0.01, momentum=0.5, centered=True),
    "SGD, decay": lambda: old.optimizers.legacy.SGD(0.5, momentum=0.9, decay=0.5),
    "averages": lambda: old.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2),
    "schedule": lambda: old.optimizers.SGD(old.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    """A word that is repeated, whose rows tf-keras adds up first; slots of an optimizer that has trained the model."""
    old.utils.set_random_seed(1)
    layers = [L.Input((5,), dtype="int32"), L.Embedding(9, 4), L.Flatten(), L.Dense(2)]
    model, y = old.Sequential(layers), np.ones((4, 2), np.float32)
    model.compile(OPTIMIZERS[name](), "mse", run_eagerly=True)
    if name != "Adagrad":
        model.train_on_batch(WORDS, y)
    same_training(model, WORDS, y)


@pytest.mark.slow
def test_layers_losses_and_metrics() -> None:
    old.utils.set_random_seed(3)
    model, (x, y) = recurrent(), data()
    model.compile("sgd", old.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"], run_eagerly=True)
    trainer = same_training(model, x, y)
    wanted = model.evaluate(x, y, verbose=0, return_dict=True)
    assert trainer.evaluate({"x": x, "y": y}) == pytest.approx({k: float(v) for k, v in wanted.items()}, rel=1e-5)
    (predicted,) = trainer.predict({"x": x}).values()
    np.testing.assert_allclose(predicted, model.predict(x, verbose=0), rtol=1e-4, atol=1e-6)


class Attention(L.Layer):  # type: ignore[misc]
    def build(self, shape: Any) -> None:
        self.w = self.add_weight(name="w", shape=(shape[-1], 1))

    def call(self, x: Any) -> Any:
        return tf.reduce_sum(x * tf.nn.softmax(tf.tanh(x @ self.w), 1), 1)


class Subclassed(old.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = L.GRU(4), L.Dense(1)

    def call(self, x: Any) -> Any:
        return self.last(self.first(x))


class OwnStep(Subclassed):
    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.compiled_loss(y, self(x, training=True)) * 2
        self.optimizer.minimize(loss, self.trainable_variables, tape)
        return {"loss": loss}


def several() -> Any:
    """Models within a model, called twice, functions of TensorFlow on tensors, states that go from layer to layer."""
    part, x, other = old.Input((8,)), old.Input((5, 8)), old.Input((3, 8))
    inner = old.Model(part, L.Dense(4, activation="hard_sigmoid")(part))
    _, h, c = L.LSTM(4, return_state=True)(x)
    pairs = [*(inner(tensor[:, -1]) for tensor in (x, other)), L.LSTM(4)(other, initial_state=[h, c])]
    joined = 1.0 - tf.concat(pairs, -1) * tf.nn.softmax(tf.reduce_max(x, 1, keepdims=True)[:, 0, :1])
    return old.Model([x, other], [L.Dense(1, name="a")(joined), L.Dense(2, name="b")(joined)])


def dropped() -> Any:
    layers = [L.LSTM(4, dropout=0.3, recurrent_dropout=0.2), L.GaussianNoise(0.1), L.Dropout(0.3)]
    return old.Sequential([L.Input((3, 2)), *layers, L.Dense(1)])


ROWS = np.random.default_rng(0).random((4, 3, 2), np.float32)
ONE = np.linspace(0, 1, 4, dtype=np.float32)[:, None]
MODELS: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "own layer": (
        lambda: old.Sequential([L.Input((3, 2)), L.LSTM(4, return_sequences=True), Attention(), L.Dense(1)]),
        ROWS,
        ONE,
    ),
    "lambda": (
        lambda: old.Sequential([L.Input((3, 2)), L.Lambda(lambda t: tf.reduce_mean(t, 1)), L.Dense(1)]),
        ROWS,
        ONE,
    ),
    "subclassed": (Subclassed, ROWS, ONE),
    "own step": (OwnStep, ROWS, ONE),
    "time first": (
        lambda: old.Sequential([L.Input((3, 2)), L.LSTM(4, time_major=True), L.Dense(1)]),
        ROWS[:3],
        ONE[:3],
    ),
    "several": (several, [IMAGES[:, :5, :, 0], IMAGES[:, :3, :, 0]], [ONE, IMAGES[:, 0, 0, :2]]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    old.utils.set_random_seed(4)
    make, x, y = MODELS[name]
    model = make()
    if not model.built:
        model(x)
    model.compile(old.optimizers.Adam(0.01), "mse", run_eagerly=True)
    same_training(model, x, y, steps=2)


@pytest.mark.slow
def test_random_numbers_are_those_of_generators_that_are_state() -> None:
    """The model and Python draw afterwards what they would have drawn; a resumed training draws on."""
    old.utils.set_random_seed(4)
    model = dropped()
    model.compile("sgd", "mse")
    before, state = model.get_weights(), random.getstate()
    trainer = ll.Trainer(ll.from_keras(model))
    assert random.getstate() == state
    for value, kept in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, kept)
    held = trainer.state_dict()
    losses = [trainer.step({"x": ROWS, "y": ONE}).loss for _ in range(2)]
    assert losses[0] != losses[1]
    trainer.load_state_dict(held)
    assert [trainer.step({"x": ROWS, "y": ONE}).loss for _ in range(2)] == losses
    assert trainer.evaluate({"x": ROWS, "y": ONE})["loss"] != losses[0]


def test_arguments_stand_in_for_what_compile_was_given() -> None:
    """The model is not changed: neither an optimizer nor a metric of its own is touched."""
    old.utils.set_random_seed(4)
    model, x = dense(), ROWS.reshape(4, 6)[:, :5]
    model.compile("adam", "mae", metrics=["mae"])
    model(x)
    kept = {name: id(value) for name, value in vars(model).items()}
    y = np.array([0, 1, 1, 0])
    loss = old.losses.SparseCategoricalCrossentropy(from_logits=True)
    step = ll.from_keras(model, loss, "sgd", metrics={"largest": lambda _, p: tf.reduce_max(p)}, class_weight={1: 3.0})
    assert {name: id(value) for name, value in vars(model).items()} == kept
    assert not model.optimizer.variables()[1:]
    assert not model.compiled_metrics.built
    result = ll.Trainer(step).step({"x": x, "y": y}, ["largest"])
    weight = np.where(y == 1, 3.0, 1.0)
    assert result.loss == pytest.approx(float(loss(y, model(x), weight)), rel=1e-5)
    assert float(result.outputs["largest"]) == pytest.approx(float(np.max(model(x))), rel=1e-5)
    with tf.GradientTape() as tape:
        value = loss(y, model(x))
    gradients = ll.Session(ll.from_keras(model, loss, what="gradients")).run({"x": x, "y": y})
    for variable, expected in zip(
        model.trainable_variables, tape.gradient(value, model.trainable_variables), strict=True
    ):
        close(gradients[f"grad/{variable.name.removesuffix(':0')}"], expected.numpy())
    by_input = ll.Session(ll.from_keras(model, loss, what="input_gradient")).run({"x": x, "y": y})
    assert by_input["grad/x"].shape == x.shape


def test_what_is_refused() -> None:
    keras = pytest.importorskip("keras")
    model = dense()
    with pytest.raises(
        ll.InvalidInputError, match=r"optimizer requires a name or one of tf_keras .* got Keras 3's Adam"
    ):
        ll.from_keras(model, "mse", keras.optimizers.Adam())
    with pytest.raises(ll.InvalidInputError, match="training requires True for a tf-keras model"):
        ll.from_keras(model, "mse", "sgd", training=False)
    with pytest.raises(ll.InvalidInputError, match="loss requires a name, a Keras loss or a function, got none"):
        ll.from_keras(model, None, "sgd")
    with pytest.raises(
        ll.InvalidInputError, match="requires a learning_rate that is a number or a LearningRateSchedule"
    ):
        ll.from_keras(model, "mse", old.optimizers.legacy.SGD(lambda: 0.1))
    with pytest.raises(ll.InvalidInputError, match="model requires a model of Keras 3 or tf-keras, got int"):
        ll.from_keras(3, "mse", "sgd")
