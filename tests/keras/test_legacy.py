"""Models of the package tf-keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")
old = pytest.importorskip("tf_keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

from tests.support.keras_models import data  # noqa: E402

L = old.layers


def model() -> Any:
    old.utils.set_random_seed(3)
    x = old.Input((3, 2))
    h = L.Bidirectional(L.LSTM(3, return_sequences=True))(L.Masking()(x))
    h = L.BatchNormalization()(L.GRU(3)(h))
    return old.Model(x, L.Dense(3, activation="softmax", kernel_regularizer="l2")(h))


def smaller() -> Any:
    """No loops, whose eager steps take most of the time: what is left of an optimizer's test is the optimizer."""
    old.utils.set_random_seed(3)
    x = old.Input((3, 2))
    h = L.BatchNormalization()(L.Flatten()(x))
    return old.Model(x, L.Dense(3, activation="softmax", kernel_regularizer="l2")(h))


@pytest.mark.slow
@pytest.mark.parametrize(("make", "optimizer"), [(model, "sgd"), (smaller, "adam")])
def test_training_follows_tf_keras(make: Callable[[], Any], optimizer: str) -> None:
    made, (x, y) = make(), data()
    schedule = old.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    rule = old.optimizers.SGD(schedule, momentum=0.9) if optimizer == "sgd" else old.optimizers.Adam(0.01, clipnorm=0.1)
    made.compile(rule, old.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"], run_eagerly=True)
    trainer = ll.Trainer(ll.from_keras(made))
    for _ in range(3):
        made.reset_metrics()
        loss, accuracy = made.train_on_batch(x, y)
        result = trainer.step({"x": x, "y": y}, ["accuracy"])
        assert result.loss == pytest.approx(float(loss), rel=1e-5)
        assert float(result.outputs["accuracy"]) == pytest.approx(float(accuracy))
    held = [trainer.state_dict()[pair.input] for pair in trainer.state.pairs if pair.gradient]
    expected = {tuple(v.shape): [] for v in made.trainable_variables}  # type: ignore[var-annotated]
    for variable in made.trainable_variables:
        expected[tuple(variable.shape)].append(variable.numpy())
    for value in held:
        assert min(np.abs(value - other).max() for other in expected[value.shape]) < 1e-5


@pytest.mark.slow
def test_settings_that_keras_3_has_not_are_left_out_where_they_say_nothing() -> None:
    """The first layer's shape, hints, defaults; a frozen layer stays frozen."""
    old.utils.set_random_seed(4)
    layers = [L.SeparableConv2D(4, 3, input_shape=(8, 8, 2), activation="relu"), L.MaxPooling2D(), L.Flatten()]
    made = old.Sequential([*layers, L.RepeatVector(2), L.GRU(3, trainable=False), L.Dense(3, activation="softmax")])
    made.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    x, y = np.random.default_rng(0).random((4, 8, 8, 2), np.float32), np.array([0, 2, 1, 1])
    trainer = ll.Trainer(ll.from_keras(made))
    for _ in range(2):
        assert trainer.step({"x": x, "y": y}).loss == pytest.approx(float(made.train_on_batch(x, y)), rel=1e-5)
    assert sum(pair.gradient is not None for pair in trainer.state.pairs) == len(made.trainable_variables)
    words = old.Sequential([L.Embedding(11, 6, input_length=5), L.SpatialDropout1D(0.2), L.LSTM(3), L.Dense(1)])
    assert ll.from_keras(words, "mse", "sgd").graph.input[0].name == "x"


def attended() -> Any:
    x, memory = old.Input((5, 8)), old.Input((3, 8))
    h = L.MultiHeadAttention(2, 4)(query=x, value=memory, key=memory, use_causal_mask=True)
    return old.Model([x, memory], L.Dense(1)(L.GlobalAveragePooling1D()(h)))


def decoded() -> Any:
    """States go from layer to layer."""
    x, begun = old.Input((5, 8)), old.Input((3, 8))
    _, a, b, c, d = L.Bidirectional(L.LSTM(3, return_state=True, recurrent_activation="hard_sigmoid"))(x)
    states = [L.Concatenate()(pair) for pair in ((a, c), (b, d))]
    return old.Model([x, begun], L.Dense(1)(L.LSTM(6)(begun, initial_state=states)))


def nested() -> Any:
    """Models within a model, called twice, and functions of TensorFlow on tensors."""
    part, x, other = old.Input((8,)), old.Input((5, 8)), old.Input((3, 8))
    inner = old.Model(part, L.Dense(4, activation="hard_sigmoid")(part))
    plain = old.Sequential([old.Input((8,)), L.Dense(4)])
    pairs = [model(tensor[:, -1]) for model in (inner, plain) for tensor in (x, other)]
    h = 1.0 - tf.concat(pairs, -1) * tf.nn.softmax(tf.reduce_max(x, 1, keepdims=True)[:, 0, :1])
    return old.Model([x, other], [L.Dense(1)(h), plain(x[:, 0])[:, :1]])


@pytest.mark.slow
@pytest.mark.parametrize("make", [attended, decoded, nested])
def test_calls_with_several_tensors_are_rebuilt(make: Callable[[], Any]) -> None:
    old.utils.set_random_seed(4)
    made, rng = make(), np.random.default_rng(0)
    made.compile(old.optimizers.SGD(0.1), "mse", run_eagerly=True)
    x = [rng.standard_normal((4, *tensor.shape[1:]), np.float32) for tensor in made.inputs]
    y = [rng.standard_normal((4, 1), np.float32) for _ in made.outputs]
    step = ll.from_keras(made)
    names = [entry.name for entry in step.graph.input if entry.name[:2] in ("x/", "y/") or entry.name in ("x", "y")]
    assert len(names) == len(x) + len(y)
    trainer = ll.Trainer(step)
    for _ in range(2):
        loss = made.train_on_batch(x, y)
        result = trainer.step(dict(zip(names, [*x, *y], strict=True)))
        assert result.loss == pytest.approx(float(np.ravel(loss)[0]), rel=1e-5)


@pytest.mark.slow
def test_layers_with_other_functions_or_statistics_are_rebuilt() -> None:
    """Keras 3's hard sigmoid is less steep; what a Normalization has adapted to is no weight that it reads."""
    old.utils.set_random_seed(4)
    made = old.Sequential([old.Input((4, 6, 6, 2)), L.Normalization(), L.ConvLSTM2D(3, 3), L.Flatten(), L.Dense(1)])
    rng = np.random.default_rng(0)
    x, y = rng.random((4, 4, 6, 6, 2), np.float32) * 5, rng.random((4, 1), np.float32)
    made.layers[0].adapt(x)
    made.compile("sgd", "mse", run_eagerly=True)
    trainer = ll.Trainer(ll.from_keras(made))
    for _ in range(2):
        assert trainer.step({"x": x, "y": y}).loss == pytest.approx(float(made.train_on_batch(x, y)), rel=1e-5)


@pytest.mark.slow
def test_layers_that_augment_images_are_rebuilt_where_they_draw_alike() -> None:
    images = old.Input((8, 8, 3))
    layers = [L.RandomRotation(0.2), L.RandomZoom(0.2), L.RandomTranslation(0.1, 0.2), L.RandomBrightness(0.2)]
    made = old.Sequential([images, *layers, L.RandomFlip("horizontal"), L.Flatten(), L.Dense(1)])
    assert ll.from_keras(made, "mse", "sgd").graph.input[0].name == "x"
    for layer in (L.RandomFlip(name="drawn"), L.RandomContrast(0.2, name="drawn"), L.RandomCrop(4, 4, name="drawn")):
        refused = old.Sequential([images, layer, L.Flatten(), L.Dense(1)])
        with pytest.raises(ll.UnsupportedOpError, match="got: layer 'drawn', whose draws are others in Keras 3"):
            ll.from_keras(refused, "mse", "sgd")


@pytest.mark.slow
def test_what_keras_3_cannot_rebuild_is_refused() -> None:
    class Own(old.Model):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x

    made = Own(name="own")
    made(np.ones((2, 3), np.float32))
    with pytest.raises(ll.UnsupportedOpError, match="model 'own' must be one that Keras 3 can rebuild"):
        ll.from_keras(made, "mse", "sgd")
    with pytest.raises(ll.InvalidInputError, match="optimizer requires one that Keras 3 has, got tf-keras' Own"):
        ll.from_keras(model(), "mse", type("Own", (old.optimizers.SGD,), {})())
    with pytest.raises(ll.InvalidInputError, match="model requires a model of Keras 3 or tf-keras, got int"):
        ll.from_keras(3, "mse", "sgd")
