"""Whole training steps with convolutions, pooling and batch normalisation before the recurrent layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")

Array = np.ndarray[Any, Any]


def variable(rng: np.random.Generator, name: str, *shape: int) -> Any:
    return tf.Variable(0.4 * rng.standard_normal(shape).astype(np.float32), name=name)


@pytest.mark.slow
@pytest.mark.parametrize("open_sizes", [False, True])
def test_a_step_of_convolution_pooling_normalization_and_block_lstm(open_sizes: bool) -> None:
    batch, rows, columns, units = 4, 7, 8, 5
    rng = np.random.default_rng(0)
    first, second = variable(rng, "first", 3, 3, 2, 4), variable(rng, "second", 3, 3, 4, 1)
    sequence, scale, offset = variable(rng, "sequence", 3, 4, 6), variable(rng, "scale", 4), variable(rng, "offset", 4)
    w, dense = variable(rng, "w", 6 + units, 4 * units), variable(rng, "dense", units, 3)
    weights = [first, second, sequence, scale, offset, w, dense]
    mean, variance = tf.Variable(tf.zeros(4), name="mean"), tf.Variable(tf.ones(4), name="variance")
    zeros = tf.zeros(units)
    spec = tf.TensorSpec([None, None, None, 2] if open_sizes else [batch, rows, columns, 2], name="x")

    @tf.function(input_signature=[spec, tf.TensorSpec([None if open_sizes else batch], tf.int64, name="y")])
    def step(x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            z = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, first, 1, "SAME")), 2, [2, 1], "SAME")
            z = tf.nn.depthwise_conv2d(z, second, [1, 1, 1, 1], "SAME")
            z, new_mean, new_variance = tf.compat.v1.nn.fused_batch_norm(
                z, scale, offset, mean, variance, epsilon=1e-3, exponential_avg_factor=0.1
            )
            z = tf.reduce_mean(tf.nn.avg_pool2d(z, [2, 1], [2, 1], "SAME"), 1)
            z = tf.nn.conv1d(z, sequence, 2, "VALID")
            steps = tf.transpose(z, [1, 0, 2])
            state = tf.zeros([tf.shape(steps)[1], units])
            h = tf.raw_ops.BlockLSTM(
                seq_len_max=tf.cast(tf.shape(steps)[0], tf.int64), x=steps, cs_prev=state, h_prev=state, w=w,
                wci=zeros, wcf=zeros, wco=zeros, b=tf.zeros(4 * units),
            ).h  # fmt: skip
            logits = h[-1] @ dense
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.2 * gradient)
        mean.assign(new_mean)
        variance.assign(new_variance)
        return {"loss": loss}

    model = ll.lower(ll.from_tensorflow(step, weights="inputs"))
    assert {node.domain for node in model.graph.node} == {""}
    trainer = ll.Trainer(model)
    x, y = rng.standard_normal((batch, rows, columns, 2)).astype(np.float32), np.array([0, 2, 1, 2])
    for _ in range(4):
        np.testing.assert_allclose(trainer.step({"x": x, "y": y}).loss, step(x, y)["loss"].numpy(), rtol=1e-5)
    held = trainer.state_dict()
    for kept in [*weights, mean, variance]:
        expected = kept.numpy()
        np.testing.assert_allclose(
            held[kept.name.removesuffix(":0")], expected, rtol=0, atol=1e-5 * np.abs(expected).max()
        )


def image_layers(layers: Any) -> list[Any]:
    return [
        layers.Conv2D(4, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.SeparableConv2D(5, (3, 2), padding="same", use_bias=False),
        layers.BatchNormalization(),
        layers.AveragePooling2D((1, 2), padding="same"),
        layers.Reshape((4, 10)),
        layers.LSTM(6),
    ]


def sequence_layers(layers: Any) -> list[Any]:
    return [
        layers.Conv1D(4, 3, strides=2, padding="same", use_bias=False),
        layers.BatchNormalization(),
        layers.Activation("relu"),
        layers.DepthwiseConv1D(3, depth_multiplier=2),
        layers.MaxPooling1D(2, 1),
        layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        layers.AveragePooling1D(2),
        layers.GRU(4),
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize(("build", "shape"), [(image_layers, (8, 7, 2)), (sequence_layers, (16, 3))])
def test_a_keras_model_trains_as_in_keras(build: Callable[[Any], list[Any]], shape: tuple[int, ...]) -> None:
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(1)
    layers = [keras.Input(shape), *build(keras.layers), keras.layers.Dense(3, activation="softmax")]
    model, loss = keras.Sequential(layers), "sparse_categorical_crossentropy"
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((5, *shape)).astype(np.float32), np.array([0, 2, 1, 2, 0])
    trainer = ll.Trainer(ll.from_keras(model, loss, keras.optimizers.SGD(0.05)))
    model.compile(keras.optimizers.SGD(0.05), loss)
    for _ in range(4):
        assert trainer.step({"x": x, "y": y}).loss == pytest.approx(float(model.train_on_batch(x, y)), rel=1e-5)
    held = trainer.state_dict()
    kept_in_both = [kept for kept in model.variables if kept.path in held and kept.dtype == "float32"]
    assert len(kept_in_both) == len(model.weights) - sum(kept.dtype != "float32" for kept in model.weights)
    for kept in kept_in_both:
        expected = kept.numpy()
        np.testing.assert_allclose(held[kept.path], expected, rtol=0, atol=1e-5 * max(np.abs(expected).max(), 1e-2))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_normalization_of_nearly_equal_rows_is_as_exact_as_in_tensorflow() -> None:
    """Three rows that hardly differ are divided by a small deviation, which enlarges every rounding before it.

    Two exact implementations then differ by more than 1e-5; what counts is the distance of each to float64.
    """
    keras = pytest.importorskip("keras")
    layers, loss = keras.layers, keras.losses.sparse_categorical_crossentropy
    errors: dict[str, list[float]] = {"ours": [], "tensorflow": []}
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x, y = 0.05 * rng.standard_normal((3, 5, 2)).astype(np.float32), rng.integers(0, 3, 3)
        models = {}
        for dtype in ("float32", "float64"):
            keras.utils.set_random_seed(seed)
            hidden = [layers.LSTM(4, dtype=dtype), layers.BatchNormalization(dtype=dtype)]
            last = layers.Dense(3, activation="softmax", dtype=dtype)
            models[dtype] = keras.Sequential([keras.Input((5, 2), dtype=dtype), *hidden, last])
        models["float64"].set_weights([weight.astype(np.float64) for weight in models["float32"].get_weights()])
        gradients = {}
        for dtype, model in models.items():
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(loss(y, model(x.astype(dtype), training=True)))
            gradients[dtype] = tape.gradient(value, [kept.value for kept in model.trainable_variables])
        exported = ll.from_keras(models["float32"], "sparse_categorical_crossentropy", what="gradients")
        results = ll.Session(exported).run({"x": x, "y": y})
        for kept, kernel, exact in zip(
            models["float32"].trainable_variables, gradients["float32"], gradients["float64"], strict=True
        ):
            scale = np.abs(exact.numpy()).max()
            for name, value in (("ours", results[f"grad/{kept.path}"]), ("tensorflow", kernel.numpy())):
                errors[name].append(float(np.abs(value - exact.numpy()).max() / scale))
    ours, theirs = (float(np.exp(np.mean(np.log(np.maximum(errors[name], 1e-12))))) for name in errors)
    assert ours < 2 * theirs
    assert max(errors["ours"]) < 4 * max(errors["tensorflow"])
