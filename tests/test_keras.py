"""Keras models exported in one call: gradients as `tf.GradientTape` has them, updates as Keras' optimizers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower import state

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
L = keras.layers
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

LOSS = "sparse_categorical_crossentropy"
STEPS, FEATURES = 3, 2

LAYERS: dict[str, Callable[[], list[Any]]] = {
    "lstm": lambda: [L.LSTM(5)],
    "gru": lambda: [L.GRU(5)],
    "simple_rnn": lambda: [L.SimpleRNN(5)],
    "stacked": lambda: [L.LSTM(4, return_sequences=True), L.GRU(3)],
    "bidirectional_lstm": lambda: [L.Bidirectional(L.LSTM(3))],
    "bidirectional_gru": lambda: [L.Bidirectional(L.GRU(3, return_sequences=True), merge_mode="sum"), L.LSTM(3)],
    "backwards": lambda: [L.LSTM(4, go_backwards=True)],
    "masked": lambda: [L.Masking(), L.LSTM(4)],
    "masked_sequences": lambda: [L.Masking(), L.GRU(3, return_sequences=True), L.GlobalAveragePooling1D()],
    "sequences": lambda: [L.LSTM(4, return_sequences=True), L.GlobalMaxPooling1D()],
    "reset_before": lambda: [L.GRU(4, reset_after=False)],
    "other_activation": lambda: [L.LSTM(4, activation="softsign")],
    "dropout_off": lambda: [L.LSTM(4, dropout=0.5), L.Dropout(0.5)],
    "batch_norm_and_penalty": lambda: [L.LSTM(4, kernel_regularizer="l2"), L.BatchNormalization()],
}


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, STEPS, FEATURES)).astype(np.float32)
    x[1, 2:], x[2, 1:], x[3, 0] = 0, 0, 0
    return x, np.array([0, 1, 2, 1])


def build(layers: list[Any], steps: int | None = STEPS) -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.Input((steps, FEATURES)), *layers, L.Dense(3, activation="softmax", dtype="float32")]
    )


def tape(model: Any, *, with_input: bool = False) -> tuple[float, list[Any]]:
    x, y = data()
    x = tf.constant(x)
    with tf.GradientTape() as recorded:
        recorded.watch(x)
        loss = tf.reduce_mean(keras.losses.get(LOSS)(y, model(x, training=False))) + sum(model.losses)
    sources = [x] if with_input else [variable.value for variable in model.trainable_variables]
    return float(loss), [np.asarray(tf.convert_to_tensor(g)) for g in recorded.gradient(loss, sources)]


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_equal_the_tape(name: str) -> None:
    model = build(LAYERS[name]())
    exported = ll.from_keras(model, LOSS, what="gradients", training=False)
    x, y = data()
    results = ll.Session(exported).run({"x": x, "y": y})
    loss, gradients = tape(model)
    assert float(results["loss"]) == pytest.approx(loss, rel=1e-5)
    for variable, expected in zip(model.trainable_variables, gradients, strict=True):
        got = results[f"grad/{variable.path}"]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max(), err_msg=variable.path)


def test_mixed_precision_gradients() -> None:
    model = build([L.LSTM(4, dtype="mixed_float16")])
    exported = ll.from_keras(model, LOSS, what="gradients", training=False)
    x, y = data()
    results = ll.Session(exported).run({"x": x, "y": y})
    full = build([L.LSTM(4)])
    full.set_weights(model.get_weights())
    _, gradients = tape(full)
    for variable, expected in zip(model.trainable_variables, gradients, strict=True):
        got = results[f"grad/{variable.path}"]
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=0, atol=5e-3 * np.abs(expected).max())


def test_input_gradient() -> None:
    model = build([L.LSTM(4)])
    results = ll.Session(ll.from_keras(model, LOSS, what="input_gradient", training=False)).run(
        dict(zip(("x", "y"), data(), strict=True))
    )
    expected = tape(model, with_input=True)[1][0]
    np.testing.assert_allclose(results["grad/x"], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop"])
def test_training_follows_keras(optimizer: str) -> None:
    model = build([L.LSTM(4)])
    rule = keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": 0.01}})
    exported = ll.from_keras(model, LOSS, rule, metrics=["sparse_categorical_accuracy"])
    trainer = ll.Trainer(exported)
    assert trainer.learning_rate == pytest.approx(0.01)
    x, y = data()
    model.compile(rule, LOSS)
    for _ in range(5):
        expected = model.train_on_batch(x, y)
        result = trainer.step({"x": x, "y": y}, ["sparse_categorical_accuracy"])
        assert result.loss == pytest.approx(float(expected), rel=1e-4)
    paths = {pair.variable: pair for pair in trainer.state.pairs}
    held = trainer.state_dict()
    for variable in model.trainable_variables:
        pair = paths[variable.path]
        assert (pair.role, pair.gradient) == ("weight", f"grad/{variable.path}")
        np.testing.assert_allclose(held[pair.input], variable.numpy(), rtol=1e-3, atol=1e-5)


def test_dropout_differs_from_step_to_step() -> None:
    model = build([L.LSTM(4, dropout=0.5), L.Dropout(0.5)])
    trainer = ll.Trainer(ll.from_keras(model, LOSS, "sgd"), learning_rate=0.0)
    x, y = data()
    losses = [trainer.step({"x": x, "y": y}).loss for _ in range(5)]
    assert len(set(losses)) == 5


def test_export_leaves_the_model() -> None:
    model = build([L.LSTM(4), L.BatchNormalization()])
    before = [value.copy() for value in model.get_weights()]
    exported = ll.from_keras(model, LOSS, "adam")
    assert "loss" in {value.name for value in exported.graph.output}
    for value, kept in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, kept)
    assert state.parse({p.key: p.value for p in exported.metadata_props}).loss == "loss"


def test_what_cannot_be_kept_is_named() -> None:
    model = build([L.SimpleRNN(3, name="elman")], steps=None)
    with pytest.raises(ll.UnsupportedOpError, match="layer 'elman' requires a known number of steps"):
        ll.from_keras(model, LOSS, "sgd")
    with pytest.raises(ll.InvalidInputError, match="what requires one of"):
        ll.from_keras(model, LOSS, what="gradient")  # type: ignore[arg-type]
    with pytest.raises(ll.InvalidInputError, match="loss requires a name"):
        ll.from_keras(model)
    with pytest.raises(ll.InvalidInputError, match="optimizer requires a name"):
        ll.from_keras(model, LOSS)
