"""Training in onnxruntime from what TensorFlow traced: layers with state and dropout, a whole user's step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")

Array = np.ndarray[Any, Any]


def layers_of(name: str) -> list[Any]:
    keras = pytest.importorskip("keras")
    layers = keras.layers
    return {
        "layer-normalization": [layers.LayerNormalization(), layers.Dense(3, activation="softplus")],
        "group-normalization": [layers.Dense(4), layers.GroupNormalization(2)],
        "unit-normalization": [layers.UnitNormalization(), layers.Dense(3), layers.PReLU()],
        "batch-normalization": [layers.Dense(4), layers.BatchNormalization(), layers.Dense(3)],
        "dropout": [layers.Dense(4), layers.Dropout(0.3, seed=3), layers.Dense(3)],
        "alpha-dropout": [layers.AlphaDropout(0.3, seed=3), layers.Dense(3)],
        "gaussian-noise": [layers.GaussianNoise(0.3, seed=3), layers.Dense(3)],
        "regularized": [layers.Dense(3, kernel_regularizer="l2", activity_regularizer="l1")],
    }[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "layer-normalization",
        "group-normalization",
        "unit-normalization",
        "batch-normalization",
        "dropout",
        "alpha-dropout",
        "gaussian-noise",
        "regularized",
    ],
)
def test_keras_layers_train_as_in_tensorflow(name: str) -> None:
    keras = pytest.importorskip("keras")
    model = keras.Sequential(layers_of(name))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 4)).astype(np.float32)
    model(x)
    weights = [variable.value for variable in model.trainable_variables]

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def step(x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True))) + tf.add_n([tf.zeros([]), *model.losses])
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}

    trainer = ll.Trainer(ll.lower(ll.from_tensorflow(step, weights="inputs")))
    for _ in range(4):
        np.testing.assert_allclose(trainer.step({"x": x}).loss, step(x)["loss"].numpy(), rtol=1e-5)


@pytest.mark.slow
def test_a_users_step_trains_as_in_tensorflow() -> None:
    steps, inputs, units, classes = 6, 5, 7, 3
    rng = np.random.default_rng(1)

    def variable(name: str, *shape: int) -> Any:
        return tf.Variable(0.3 * rng.standard_normal(shape).astype(np.float32), name=name)

    w1, b1 = variable("w1", inputs + units, 4 * units), variable("b1", 4 * units)
    w2, b2 = variable("w2", 2 * units, 4 * units), variable("b2", 4 * units)
    peepholes = [variable(f"p{number}", units) for number in range(3)]
    dense, bias, gamma = variable("dense", units, classes), variable("bias", classes), variable("gamma", units)
    weights = [w1, b1, w2, b2, *peepholes, dense, bias, gamma]
    momenta = [tf.Variable(tf.zeros_like(weight), name=f"m{number}") for number, weight in enumerate(weights)]

    @tf.function(input_signature=[tf.TensorSpec([None, steps, inputs], tf.float32), tf.TensorSpec([None], tf.int64)])
    def step(x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            zeros = tf.zeros([tf.shape(x)[0], units])
            common = {"cs_prev": zeros, "h_prev": zeros, **dict(zip(("wci", "wcf", "wco"), peepholes, strict=True))}
            length = tf.constant(steps, tf.int64)
            h = tf.raw_ops.BlockLSTM(
                seq_len_max=length, x=tf.transpose(x, [1, 0, 2]), w=w1, b=b1, use_peephole=True, cell_clip=3.0, **common
            ).h
            mean, variance = tf.nn.moments(h, [-1], keepdims=True)
            h = tf.nn.leaky_relu((h - mean) * tf.math.rsqrt(variance + 1e-5) * gamma)
            h = tf.raw_ops.BlockLSTM(seq_len_max=length, x=h, w=w2, b=b2, **common).h
            logits = tf.nn.bias_add(tf.matmul(h[-1], dense), bias)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
            loss += 1e-3 * tf.add_n([tf.nn.l2_loss(weight) for weight in weights])
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, weights), 0.2)
        for weight, momentum, gradient in zip(weights, momenta, gradients, strict=True):
            momentum.assign(0.9 * momentum + gradient)
            weight.assign_sub(0.1 * momentum)
        return {"loss": loss, "norm": norm}

    trainer = ll.Trainer(ll.lower(ll.from_tensorflow(step, weights="inputs")))
    batch = rng.standard_normal((4, steps, inputs)).astype(np.float32), np.array([0, 2, 1, 1])
    for _ in range(5):
        expected = step(*batch)
        ours = trainer.step({"x": batch[0], "y": batch[1]})
        np.testing.assert_allclose(ours.loss, expected["loss"].numpy(), rtol=1e-5)
    values = trainer.state_dict()
    for weight in (*weights, *momenta):
        np.testing.assert_allclose(values[weight.name.removesuffix(":0")], weight.numpy(), rtol=0, atol=1e-6)
