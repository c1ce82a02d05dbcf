"""Random models of Keras with a loss and an optimizer, and three steps of each."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import lstm_lower as ll
from tests.support.fuzz.tf_programs.forms import Outcome, nudged
from tests.support.fuzz.tf_programs.scope import Array

L = keras.layers

ACTIVATIONS = (
    "tanh",
    "relu",
    "sigmoid",
    "elu",
    "softsign",
    "gelu",
    "hard_sigmoid",
    "silu",
    "linear",
    "softplus",
    "mish",
)
STEPS = 3


class Cell(L.Layer):  # type: ignore[misc]
    """A cell of one's own: a leaky state with a gate."""

    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(**options)
        self.units = self.state_size = units

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 2 * self.units), name="kernel")
        self.back = self.add_weight(shape=(self.units, 2 * self.units), name="back", initializer="orthogonal")

    def call(self, x: Any, states: Any) -> Any:
        new, gate = keras.ops.split(keras.ops.matmul(x, self.kernel) + keras.ops.matmul(states[0], self.back), 2, -1)
        gate = keras.ops.sigmoid(gate)
        h = gate * states[0] + (1 - gate) * keras.ops.tanh(new)
        return h, [h]


@dataclasses.dataclass
class Task:
    """A model and what it learns.

    Attributes:
        model: the model.
        loss: a Keras loss or its name.
        optimizer: a Keras optimizer.
        x: inputs, in order.
        y: targets.
    """

    model: Any
    loss: Any
    optimizer: Any
    x: list[Array]
    y: Array


def task(seed: int) -> Task:
    """The model of a seed."""
    draw = random.Random(f"keras {seed}")
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    batch, steps, features = draw.randint(2, 4), draw.randint(2, 5), draw.randint(1, 4)
    kind = draw.choice(["sequence", "sequence", "words", "image", "video"])
    inputs: list[Any] = []
    arrays: list[Array] = []
    fixed = draw.random() < 1 / 5

    def given(shape: list[int], *, open_steps: bool = False, dtype: str = "float32") -> Any:
        declared = [None if open_steps and not place else size for place, size in enumerate(shape)]
        sizes = {"batch_shape": [batch, *declared]} if fixed else {"shape": declared}
        inputs.append(keras.Input(**sizes, dtype=dtype, name=f"x{len(inputs)}"))
        if dtype == "int32":
            words = rng.integers(1, 7, [batch, *shape])
            words[0, -draw.randint(0, shape[0] - 1) or shape[0] :] = 0
            arrays.append(words.astype(dtype))
        else:
            array = rng.standard_normal([batch, *shape]).astype(dtype)
            if kind == "sequence":
                array[0, -draw.randint(0, shape[0] - 1) or shape[0] :] = 0
            arrays.append(array)
        return inputs[-1]

    match kind:
        case "words":
            words = given([steps], open_steps=draw.random() < 1 / 2, dtype="int32")
            h = L.Embedding(7, features + 1, mask_zero=draw.random() < 1 / 2)(words)
        case "image":
            h = given([draw.randint(4, 6), draw.randint(4, 6), features])
        case "video":
            h = given([steps, 4, draw.randint(4, 5), 1])
        case _:
            h = given([steps, features], open_steps=draw.random() < 1 / 2)
            if draw.random() < 1 / 3:
                h = L.Masking()(h)
    for _ in range(draw.randint(1, 4)):
        h = _layer(draw, h, stateful=fixed)
    h = _flat(draw, h)
    if draw.random() < 1 / 4:
        h = L.Concatenate()([h, L.Dense(2, activation="tanh")(given([3]))])
    loss, classes, last = _loss(draw)
    h = L.Dense(classes, activation=last)(h)
    if loss == "sparse_categorical_crossentropy":
        y = rng.integers(0, classes, [batch])
    elif last in ("softmax", "sigmoid"):
        y = np.eye(classes)[rng.integers(0, classes, batch)].astype("float32")
    else:
        y = (np.abs(rng.standard_normal([batch, classes])) + 0.1).astype("float32")
    return Task(keras.Model(inputs if len(inputs) > 1 else inputs[0], h), loss, _optimizer(draw), arrays, y)


def _loss(draw: random.Random) -> tuple[Any, int, str | None]:
    classes = draw.randint(2, 4)
    return draw.choice(
        [
            ("sparse_categorical_crossentropy", classes, "softmax"),
            (keras.losses.CategoricalCrossentropy(label_smoothing=0.1), classes, "softmax"),
            ("binary_crossentropy", classes, "sigmoid"),
            (keras.losses.BinaryFocalCrossentropy(), classes, "sigmoid"),
            ("mse", classes, None),
            ("mae", classes, None),
            (keras.losses.Huber(0.5), classes, None),
            ("log_cosh", classes, None),
            ("cosine_similarity", classes, None),
            ("poisson", classes, "softplus"),
            (keras.losses.Tversky(), classes, "sigmoid"),
            ("kl_divergence", classes, "softmax"),
            ("squared_hinge", classes, "sigmoid"),
        ]
    )


def _optimizer(draw: random.Random) -> Any:
    o = keras.optimizers
    limits = draw.choice([{}, {}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.1}, {"use_ema": True},
                          {"weight_decay": 0.01}, {"gradient_accumulation_steps": 2}])  # fmt: skip
    schedule = keras.optimizers.schedules
    rate = draw.choice([0.05, 0.05, 0.05, schedule.ExponentialDecay(0.1, 2, 0.5), schedule.CosineDecay(0.1, 4),
                        schedule.PiecewiseConstantDecay([1, 2], [0.1, 0.05, 0.01])])  # fmt: skip
    made = draw.choice(
        [
            lambda: o.SGD(rate, momentum=draw.choice([0.0, 0.9]), nesterov=draw.random() < 1 / 2, **limits),
            lambda: o.Adam(rate, epsilon=1e-3, amsgrad=draw.random() < 1 / 2, **limits),
            lambda: o.AdamW(rate, epsilon=1e-3, **{"weight_decay": 0.02} | limits),
            lambda: o.Nadam(rate, epsilon=1e-3, **limits),
            lambda: o.Adamax(rate, epsilon=1e-3, **limits),
            lambda: o.RMSprop(rate, epsilon=1e-2, momentum=0.5, centered=draw.random() < 1 / 2, **limits),
            lambda: o.Adagrad(rate, epsilon=1e-2, **limits),
            lambda: o.Adadelta(rate, epsilon=1e-2, **limits),
            lambda: o.Ftrl(rate, l1_regularization_strength=0.01, **limits),
            lambda: o.Lamb(rate, epsilon=1e-3, **limits),
            lambda: o.Adafactor(rate, **limits),
        ]
    )
    return made()


def _recurrent(draw: random.Random, h: Any, *, stateful: bool) -> Any:
    units = draw.randint(1, 4)
    common = {
        "return_sequences": draw.random() < 2 / 3,
        "go_backwards": draw.random() < 1 / 4,
        "unroll": draw.random() < 1 / 6 and h.shape[1] is not None,
    }
    if stateful and draw.random() < 1 / 2:
        common["stateful"] = True
    options = {
        "activation": draw.choice(["tanh", *ACTIVATIONS]),
        "use_bias": draw.random() < 3 / 4,
        "dropout": draw.choice([0.0, 0.0, 0.3]),
        "recurrent_dropout": draw.choice([0.0, 0.0, 0.2]),
        "kernel_regularizer": draw.choice([None, "l2"]),
        "recurrent_constraint": draw.choice([None, "max_norm"]),
    }
    gate = {"recurrent_activation": draw.choice(["sigmoid", "sigmoid", "hard_sigmoid", "tanh"])}
    match draw.choice(["lstm", "lstm", "gru", "gru", "simple", "cells", "own", "both"]):
        case "lstm":
            layer = L.LSTM(units, **common, **options, **gate, unit_forget_bias=draw.random() < 1 / 2)
        case "gru":
            layer = L.GRU(units, **common, **options, **gate, reset_after=draw.random() < 1 / 2)
        case "simple":
            layer = L.SimpleRNN(units, **common, **options)
        case "own":
            layer = L.RNN(Cell(units), **common)
        case "cells":
            layer = L.RNN([L.LSTMCell(units), L.GRUCell(units + 1), Cell(units)][: draw.randint(2, 3)], **common)
        case _:
            inner = draw.choice([L.LSTM, L.GRU])(
                units, return_sequences=common["return_sequences"], dropout=options["dropout"]
            )
            layer = L.Bidirectional(inner, merge_mode=draw.choice(["concat", "sum", "mul", "ave"]))
    return layer(h)


def _layer(draw: random.Random, h: Any, *, stateful: bool) -> Any:
    units, activation = draw.randint(1, 4), draw.choice(ACTIVATIONS)
    anywhere = [
        lambda: L.Dense(units, activation=activation, kernel_initializer=draw.choice(["glorot_uniform", "he_normal"]))(
            h
        ),
        lambda: L.Dropout(0.3)(h),
        lambda: L.LayerNormalization()(h),
        lambda: L.BatchNormalization(momentum=0.8)(h),
        lambda: L.Activation(activation)(h),
        lambda: L.GaussianNoise(0.1)(h),
        lambda: L.LeakyReLU()(h),
        lambda: L.UnitNormalization()(h) + 0.1,
        lambda: L.ActivityRegularization(l2=0.01)(h),
    ]
    match len(h.shape):
        case 3:
            return draw.choice([*anywhere, *[lambda: _recurrent(draw, h, stateful=stateful)] * 12,
                lambda: L.TimeDistributed(L.Dense(units, activation=activation))(h),
                lambda: L.Conv1D(units, 2, padding=draw.choice(["same", "causal"]), dilation_rate=2)(h),
                lambda: L.MultiHeadAttention(2, 2)(h, h, use_causal_mask=draw.random() < 1 / 2),
                lambda: L.Attention(use_scale=True)([h, h]),
                lambda: L.AdditiveAttention()([h, h]),
                lambda: L.SeparableConv1D(units, 2, padding="same")(h),
                lambda: L.GroupNormalization(1)(h),
                lambda: L.SpatialDropout1D(0.3)(h),
                lambda: L.GroupQueryAttention(2, 2, 1)(h, h),
                lambda: L.UpSampling1D(2)(h),
            ])()  # fmt: skip
        case 4:
            return draw.choice([*anywhere,
                lambda: L.Conv2D(units, 2, padding=draw.choice(["same", "valid"]), activation=activation)(h),
                lambda: L.Conv2D(units, 3, padding="same", strides=2)(h),
                lambda: L.DepthwiseConv2D(2, padding="same", depth_multiplier=2)(h),
                lambda: L.SeparableConv2D(units, 2, padding="same")(h),
                lambda: L.Conv2DTranspose(units, 2, strides=2, padding="same")(h),
                lambda: L.MaxPooling2D(2, padding="same")(h),
                lambda: L.AveragePooling2D(2, padding="same")(h),
                lambda: L.UpSampling2D(2, interpolation=draw.choice(["nearest", "bilinear"]))(h),
                lambda: L.ZeroPadding2D(1)(h),
                lambda: L.RandomFlip()(h),
                lambda: L.PReLU(shared_axes=[1, 2])(h),
                lambda: L.Reshape((-1, h.shape[-1]))(h),
            ])()  # fmt: skip
        case 5:
            return draw.choice([
                lambda: L.ConvLSTM2D(units, 2, padding=draw.choice(["same", "valid"]),
                                     return_sequences=draw.random() < 1 / 2)(h),
                lambda: L.TimeDistributed(L.Conv2D(units, 2, activation=activation))(h),
                lambda: L.Conv3D(units, 2, padding="same")(h),
                lambda: L.MaxPooling3D(2, padding="same")(h),
                lambda: L.TimeDistributed(L.GlobalAveragePooling2D())(h),
            ])()  # fmt: skip
        case _:
            return draw.choice([*anywhere, lambda: L.RepeatVector(3)(h)])()


def _flat(draw: random.Random, h: Any) -> Any:
    match len(h.shape):
        case 2:
            return h
        case 3:
            last = L.Lambda(lambda sequence: sequence[:, -1])
            layer = draw.choice([L.GlobalAveragePooling1D(), L.GlobalMaxPooling1D(), L.GRU(3), L.LSTM(2), last])
        case 4:
            layer = draw.choice([L.GlobalAveragePooling2D(), L.GlobalMaxPooling2D(), L.Flatten()])
        case _:
            layer = L.GlobalAveragePooling3D()
    return layer(h)


def theirs(made: Task, *, moved: int = 0) -> Outcome:
    """Steps of Keras; of moved inputs and weights, if asked for."""
    rng = np.random.default_rng(moved)
    model = made.model
    x = [nudged(a, rng) if moved and a.dtype.kind == "f" else a for a in made.x]
    if moved:
        model.set_weights([nudged(w, rng) if w.dtype.kind == "f" else w for w in model.get_weights()])
    made.optimizer.build(model.trainable_variables)
    model.compile(made.optimizer, made.loss, jit_compile=False)

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(None, made.y, model(x if len(x) > 1 else x[0], training=True))
        gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        made.optimizer.apply(gradients, model.trainable_variables)
        return loss

    losses = [{"loss": step().numpy()} for _ in range(STEPS)]
    return Outcome(losses, {variable.path: np.asarray(variable) for variable in model.weights})


def ours(made: Task) -> Outcome:
    """The same steps of the exported model."""
    model = ll.from_keras(made.model, made.loss, made.optimizer)
    trainer = ll.Trainer(model)
    names = ["x"] if len(made.x) == 1 else [f"x/{value.name}" for value in made.model.inputs]
    feeds = dict(zip(names, made.x, strict=True)) | {"y": made.y}
    losses = [{"loss": np.asarray(trainer.step(feeds).loss, "float32")} for _ in range(STEPS)]
    trainer.to_keras(made.model)
    return Outcome(losses, {variable.path: np.asarray(variable) for variable in made.model.weights})
