"""Layers of Keras: loss and gradients as `tf.GradientTape` has them, at 1e-5 in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.records import state

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

from tests.support.keras_models import LOSS, ElmanCell, build, close, data, eager_step, functional  # noqa: E402

L = keras.layers


def attended(make: Any) -> Any:
    """Attention over the states of a GRU."""

    def call(x: Any) -> Any:
        h = L.GRU(3, return_sequences=True)(x)
        return L.GlobalMaxPooling1D()(make(h))

    return call


def with_state(x: Any) -> Any:
    """The states of one layer start another."""
    _, h, c = L.LSTM(3, return_state=True)(x)
    y = L.LSTM(3, return_sequences=True)(x[:, 1:], initial_state=[h, c])
    return L.GRU(3)(y, initial_state=c)


def masked_with_state(x: Any) -> Any:
    """A mask, and states that come from outside and go on."""
    start = L.Dense(3)(x[:, 0])
    y, h, c = L.LSTM(3, return_state=True)(L.Masking()(x), initial_state=[start, start])
    return L.Concatenate()([y, h, c])


def shared(x: Any) -> Any:
    """One layer twice."""
    layer = L.LSTM(3)
    return L.Concatenate()([layer(x), layer(x[:, ::-1])])


def beside(*chains: list[Any], masked: bool = False) -> Any:
    """Chains of layers that read the same input, side by side; a fault is named by the weight that shows it."""

    def call(x: Any) -> Any:
        x = L.Masking()(x) if masked else x
        results = []
        for layers in chains:
            h = x
            for layer in layers:
                h = layer(h)
            results.append(h if len(h.shape) == 2 else L.Flatten()(h))
        return results[0] if len(results) == 1 else L.Concatenate()(results)

    return call


# Dropout is off in these, so that the eager model and the exported one see the same.
PLAIN = {
    "one_layer": lambda: beside([L.LSTM(5)], [L.GRU(4)], [L.SimpleRNN(3)], [L.LSTM(2, dropout=0.5), L.Dropout(0.5)]),
    "stacked": lambda: beside(
        [L.LSTM(4, return_sequences=True), L.GRU(3)],
        [L.LSTM(4, return_sequences=True), L.GlobalMaxPooling1D()],
        [L.LSTM(3), L.RepeatVector(2), L.LSTM(3)],
        [L.TimeDistributed(L.Dense(3, activation="relu")), L.LSTM(3)],
    ),
    "directions": lambda: beside(
        [L.Bidirectional(L.LSTM(3))],
        [L.Bidirectional(L.GRU(3, return_sequences=True), merge_mode="mul"), L.LSTM(3)],
        [L.LSTM(3, go_backwards=True, return_sequences=True)],
    ),
    "kernel_choices": lambda: beside(
        [L.LSTM(4, use_bias=False, return_sequences=True), L.GRU(3, use_bias=False)],
        [L.LSTM(4, unroll=True, return_sequences=True), L.GRU(3, use_cudnn=False)],
    ),
    "unlike_cudnn": lambda: beside([L.GRU(4, reset_after=False)], [L.LSTM(4, activation="softsign")]),
    "with_state": lambda: with_state,
    "shared": lambda: shared,
    "cells": lambda: beside([L.RNN(ElmanCell(4))], [L.RNN([L.LSTMCell(3), L.GRUCell(2)])]),
    "masked": lambda: beside(
        [L.LSTM(4)], [L.GRU(4)], [L.GRU(3, use_bias=False)], [L.GRU(3, zero_output_for_mask=True)], masked=True
    ),
    "masked_sequences": lambda: beside(
        [L.GRU(3, return_sequences=True)],
        [L.LSTM(3, return_sequences=True, zero_output_for_mask=True)],
        [L.LSTM(3, go_backwards=True, return_sequences=True)],
        masked=True,
    ),
    "masked_stacked": lambda: beside(
        [L.LSTM(3, return_sequences=True), L.GRU(3)], [L.Bidirectional(L.LSTM(2, return_sequences=True))], masked=True
    ),
    "masked_unrolled": lambda: beside([L.SimpleRNN(4)], [L.LSTM(2, recurrent_activation="tanh")], masked=True),
    "masked_with_state": lambda: masked_with_state,
    "normalized": lambda: beside(
        [L.LayerNormalization(), L.LSTM(4), L.LayerNormalization()],
        [L.LSTM(4), L.BatchNormalization()],
        [L.LSTM(4), L.UnitNormalization(), L.GroupNormalization(2)],
        [L.LSTM(4), L.PReLU(), L.Dense(3, activation="gelu")],
    ),
    "attention": lambda: attended(
        lambda h: L.Add()([L.Attention(use_scale=True)([h, h]), L.AdditiveAttention()([h, h])])
    ),
    "multi_head_attention": lambda: attended(lambda h: L.MultiHeadAttention(2, 2)(h, h)),
    # TensorFlow does not say how wide a dilated convolution's result is.
    "convolutional": lambda: beside(
        [L.Reshape((3, 2, 1)), L.ConvLSTM1D(2, 2, padding="same", dilation_rate=2)],
        [L.Reshape((3, 2, 1)), L.ConvLSTM1D(2, 2, strides=2, return_sequences=True, go_backwards=True)],
    ),
    "penalties": lambda: beside(
        [L.LSTM(4, kernel_regularizer="l2", recurrent_regularizer="l1", activity_regularizer="l2")]
    ),
}


def compare(model: Any, *, training: bool, tolerance: float = 1e-5) -> None:
    """Loss, gradients and what the layers keep for the next step."""
    x, y = data()
    model.compile("sgd", LOSS)
    exported = ll.from_keras(model, what="gradients", training=training)
    results = ll.Session(exported).run({"x": x, "y": y})
    loss, gradients = eager_step(model, x, y, training=training)
    assert float(results["loss"]) == pytest.approx(loss, rel=1e-5)
    for variable, expected in zip(model.trainable_variables, gradients, strict=True):
        close(results[f"grad/{variable.path}"], expected, tolerance, variable.path)
    kept = {pair.variable: pair.output for pair in state.parse({p.key: p.value for p in exported.metadata_props}).pairs}
    for variable in model.non_trainable_variables:
        if kept.get(variable.path) is not None:
            close(results[kept[variable.path]], variable.numpy(), what=variable.path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_gradients_equal_the_tape(name: str) -> None:
    compare(functional(PLAIN[name]()), training=False)


# Keras' dropout draws from stateless generators, whose numbers and states are the same here.
IN_TRAINING = {
    "dropout": lambda: [L.LSTM(4, dropout=0.5, seed=3), L.Dropout(0.5, seed=4)],
    "recurrent_dropout": lambda: [L.LSTM(3, recurrent_dropout=0.5, dropout=0.3, seed=3)],
    "noise": lambda: [L.SpatialDropout1D(0.5, seed=3), L.GRU(3, dropout=0.4), L.GaussianNoise(0.1, seed=3)],
    "batch_normalization": lambda: [L.BatchNormalization(), L.LSTM(4), L.BatchNormalization()],
    "augmentation": lambda: [
        L.Rescaling(0.1, 0.5),
        L.Reshape((2, 1, 3)),
        L.RandomHue(0.3, (0, 1), seed=3),
        L.RandomRotation(0.2, seed=3),
        L.Flatten(),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_TRAINING)
def test_training_draws_and_keeps_the_same(name: str) -> None:
    # Normalising a few rows enlarges rounding, Keras' and ours alike ("How close" in docs/tensorflow.md).
    tolerance = 5e-5 if name == "batch_normalization" else 1e-5
    compare(build(*IN_TRAINING[name]()), training=True, tolerance=tolerance)


@pytest.mark.slow
def test_stateful_layers_carry_their_state_on() -> None:
    x, y = data()
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input(batch_shape=(len(y), *x.shape[1:])), L.LSTM(3, stateful=True), L.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    trainer = ll.Trainer(ll.from_keras(model, loss, "sgd"), learning_rate=0.0)
    for _ in range(3):
        assert trainer.step({"x": x, "y": y}).loss == pytest.approx(eager_step(model, x, y)[0], rel=1e-5)
    held = {pair.variable: trainer.state_dict()[pair.input] for pair in trainer.state.pairs}
    path = model.layers[0].states[0].path
    for variable, name in zip(model.layers[0].states, (path, f"{path}_1"), strict=True):
        assert variable.path == path
        assert np.abs(variable.numpy()).max() > 0
        close(held[name], variable.numpy())
    other = keras.models.clone_model(model)
    trainer.to_keras(other)
    for wanted, variable in zip(model.weights, other.weights, strict=True):
        close(variable.numpy(), wanted.numpy())


@pytest.mark.slow
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_pictures_of_any_size_are_enlarged(interpolation: str) -> None:
    layers = [L.Conv2D(3, 3), L.UpSampling2D(2, interpolation=interpolation), L.Conv2D(1, 3)]
    model = keras.Sequential([keras.Input((None, None, 2)), *layers])
    trainer = ll.Trainer(ll.from_keras(model, "mse", keras.optimizers.SGD(0.05)))
    model.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=True)  # Keras cannot trace it for a second size
    rng = np.random.default_rng(2)
    for rows, height, width in ((2, 5, 6), (3, 8, 4)):
        x = rng.standard_normal((rows, height, width, 2)).astype(np.float32)
        y = rng.standard_normal((rows, 2 * height - 6, 2 * width - 6, 1)).astype(np.float32)
        assert trainer.step({"x": x, "y": y}).loss == pytest.approx(float(model.train_on_batch(x, y)), rel=1e-5)
    held = trainer.weights()
    for variable in model.weights:
        close(held[variable.path], variable.numpy())


@pytest.mark.slow
def test_a_layer_that_needs_a_size_is_named() -> None:
    model = keras.Sequential([keras.Input((None, None, 2)), L.RandomCrop(4, 4, name="crop"), L.Flatten(), L.Dense(1)])
    with pytest.raises(ll.UnsupportedOpError, match=r"in RandomCrop.call\(\): .* give it in keras.Input"):
        ll.from_keras(model, "mse", "sgd")


@pytest.mark.slow
def test_masks_need_no_known_number_of_steps() -> None:
    """Masks at random, from one step to many."""
    rng = np.random.default_rng(5)
    sequences = {"return_sequences": True}
    model = build(
        L.Masking(), L.Bidirectional(L.LSTM(3, **sequences)), L.GRU(3, go_backwards=True, **sequences), L.LSTM(2),
        steps=None,
    )  # fmt: skip
    model.compile("sgd", LOSS)
    session = ll.Session(ll.from_keras(model, what="gradients", training=False))
    for rows, steps, share in [(1, 1, 1.0), (4, 1, 0.5), (5, 7, 0.3), (3, 20, 0.8), (2, 4, 0.0)]:
        x = rng.standard_normal((rows, steps, 2)) * (rng.random((rows, steps, 1)) < share)
        x, y = x.astype(np.float32), rng.integers(0, 3, rows)
        loss, gradients = eager_step(model, x, y, training=False)
        results = session.run({"x": x, "y": y})
        assert float(results["loss"]) == pytest.approx(loss, rel=1e-5)
        for variable, expected in zip(model.trainable_variables, gradients, strict=True):
            close(results[f"grad/{variable.path}"], expected, what=variable.path)


@pytest.mark.slow
def test_embedding_masks() -> None:
    keras.utils.set_random_seed(3)
    ids = np.array([[1, 2, 0], [0, 1, 2], [3, 0, 3], [0, 0, 0]], np.int32)
    words = keras.Input((3,), dtype="int32")
    h = L.Bidirectional(L.LSTM(2, return_sequences=True))(L.Embedding(5, 3, mask_zero=True)(words))
    model = keras.Model(words, L.Dense(4, activation="softmax")(h))
    model.compile("sgd", LOSS)
    exported = ll.from_keras(model, what="gradients")
    labels = (ids + 1) % 4
    results = ll.Session(exported).run({"x": ids, "y": labels.astype(np.int64)})
    loss, gradients = eager_step(model, ids, labels)
    # Keras' loss leaves out what is masked.
    assert float(results["loss"]) == pytest.approx(loss, rel=1e-5)
    for variable, expected in zip(model.trainable_variables, gradients, strict=True):
        close(results[f"grad/{variable.path}"], expected, what=variable.path)


@pytest.mark.slow
def test_mixed_precision() -> None:
    """Computed in float16, close to Keras in float32; weights and gradients are float32."""
    x, y = data()
    half, full = (build(L.Masking(dtype=policy), L.LSTM(4, dtype=policy)) for policy in ("mixed_float16", "float32"))
    full.set_weights(half.get_weights())
    full.compile("sgd", LOSS)
    results = ll.Session(ll.from_keras(half, LOSS, what="gradients")).run({"x": x, "y": y})
    loss, gradients = eager_step(full, x, y)
    assert float(results["loss"]) == pytest.approx(loss, rel=5e-3)
    for variable, expected in zip(half.trainable_variables, gradients, strict=True):
        got = results[f"grad/{variable.path}"]
        assert got.dtype == np.float32
        close(got, expected, 5e-3, variable.path)


@pytest.mark.slow
def test_refused_layers_of_images_may_be_applied_to_the_data() -> None:
    augmenting = L.RandomElasticTransform(name="bent")
    layers = [L.Conv2D(2, 3), L.Flatten(), L.Dense(2)]
    model = keras.Sequential([keras.Input((8, 8, 3)), L.AugMix(name="mixed"), augmenting, *layers])
    with pytest.raises(
        ll.UnsupportedOpError, match=r"layers that change images, mixed, bent, may be applied to the da"
    ):
        ll.from_keras(model, "mse", "sgd")
    images = np.random.default_rng(0).random((4, 8, 8, 3), np.float32)
    trainer = ll.Trainer(ll.from_keras(keras.Sequential([keras.Input((8, 8, 3)), *layers]), "mse", "sgd"))
    bent = augmenting(images, training=True).numpy()
    assert np.isfinite(trainer.step({"x": bent, "y": np.zeros((4, 2), np.float32)}).loss)


def test_bfloat16_is_refused() -> None:
    with pytest.raises(ll.UnsupportedOpError, match=r"layer 'brief' requires a policy of .*got 'mixed_bfloat16'"):
        ll.from_keras(build(L.LSTM(2, name="brief", dtype="mixed_bfloat16")), LOSS, "sgd")


@pytest.mark.slow
def test_ops_that_cannot_be_converted_are_named() -> None:
    twisted = build(L.LSTM(2), L.Lambda(lambda h: tf.raw_ops.Betainc(a=h, b=h, x=h), name="odd"))
    with pytest.raises(ll.UnsupportedOpError, match=r"Betainc '.*/odd_?1?/Betainc'"):
        ll.from_keras(twisted, LOSS, what="input_gradient")


# What Keras has no fast path for: of any length, in a loop of the same few nodes.
OPEN = {
    "elman": lambda: [L.Masking(), L.SimpleRNN(3, return_sequences=True), L.SimpleRNN(2, go_backwards=True)],
    "cells": lambda: [L.RNN([ElmanCell(3), L.LSTMCell(2)], return_sequences=True), L.RNN(ElmanCell(4))],
    "activations": lambda: [L.LSTM(3, activation="softsign", unit_forget_bias=False), L.RepeatVector(2), L.GRU(2)],
    "reset_before": lambda: [L.Masking(), L.GRU(3, reset_after=False)],
    "recurrent_dropout": lambda: [L.LSTM(3, recurrent_dropout=0.5, seed=3, return_sequences=True), L.GRU(2)],
    "each_step": lambda: [L.TimeDistributed(L.Dense(3, activation="tanh")), L.TimeDistributed(L.Dense(2)), L.GRU(3)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPEN)
def test_any_number_of_steps(name: str) -> None:
    model = build(*OPEN[name](), steps=None)
    model.compile("sgd", LOSS)
    exported = ll.from_keras(model, what="gradients", training=True)
    assert len(exported.graph.node) < 800
    session = ll.Session(exported)
    names = {
        pair.variable: (pair.input, pair.output)
        for pair in state.parse({entry.key: entry.value for entry in exported.metadata_props}).pairs
    }
    rng, kept = np.random.default_rng(5), {}
    for rows, steps in [(2, 1), (3, 4), (1, 9)]:
        x, y = rng.standard_normal((rows, steps, 2)).astype(np.float32), rng.integers(0, 3, rows)
        x[0, steps // 2 :] = 0
        loss, gradients = eager_step(model, x, y)
        results = session.run({"x": x, "y": y, **kept})
        # Generators of dropout masks are state.
        kept = {given: results[new] for given, new in names.values() if new is not None}
        assert float(results["loss"]) == pytest.approx(loss, rel=1e-5)
        for variable, expected in zip(model.trainable_variables, gradients, strict=True):
            close(results[f"grad/{variable.path}"], expected, what=variable.path)


@pytest.mark.slow
def test_loops_are_small_whatever_layers_ask_for() -> None:
    """Unrolling is for `lower` to choose; layers are left as they were."""
    layers = [L.LSTM(3, unroll=True, return_sequences=True), L.SimpleRNN(3, unroll=True)]
    model = build(*layers, steps=50)
    assert len(ll.from_keras(model, LOSS, what="gradients").graph.node) < 800
    assert (layers[0].unroll, layers[0].use_cudnn, layers[1].unroll) == (True, "auto", True)
