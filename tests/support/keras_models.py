"""Small Keras models and what Keras itself makes of them, for the tests of the export."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

L = keras.layers
Array = np.ndarray[Any, Any]

LOSS = "sparse_categorical_crossentropy"
STEPS, FEATURES = 3, 2


def data() -> tuple[Array, Array]:
    """Rows whose masks are whole, right-padded, left-padded, with a hole, and empty; three classes."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, STEPS, FEATURES)).astype(np.float32)
    x[1, 2:], x[2, :2], x[3, 1], x[4] = 0, 0, 0, 0
    return x, np.array([0, 1, 2, 1, 0])


def build(*layers: Any, steps: int | None = STEPS) -> Any:
    """Layers and a classifier behind them."""
    keras.utils.set_random_seed(3)
    classifier = L.Dense(3, activation="softmax", dtype="float32")
    return keras.Sequential([keras.Input((steps, FEATURES)), *layers, classifier])


def functional(make: Any) -> Any:
    """A classifier behind a function of the input."""
    keras.utils.set_random_seed(3)
    x = keras.Input((STEPS, FEATURES))
    return keras.Model(x, L.Dense(3, activation="softmax")(make(x)))


def eager_step(model: Any, x: Any, y: Any, rule: Any = None, *, training: bool = True) -> tuple[float, list[Any]]:
    """Loss and gradients as `tf.GradientTape` has them, and the update if there is an optimizer."""
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x, y, model(x, training=training))
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    if rule is not None:
        rule.apply(gradients, model.trainable_variables)
    return float(loss), [None if g is None else np.asarray(tf.convert_to_tensor(g)) for g in gradients]


def close(got: Array, expected: Array, tolerance: float = 1e-5, what: str = "") -> None:
    """Compares with a tolerance relative to the largest element; what is zero but for rounding may differ."""
    largest = max(float(np.abs(expected).max(initial=0)), 1e-3)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * largest, err_msg=what)


class ElmanCell(L.Layer):  # type: ignore[misc]
    """A cell of one's own."""

    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(**options)
        self.units = self.state_size = units

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")
        self.recurrent = self.add_weight(shape=(self.units, self.units), name="recurrent")

    def call(self, x: Any, states: Any) -> Any:
        h = keras.ops.tanh(x @ self.kernel + states[0] @ self.recurrent)
        return h, [h]
