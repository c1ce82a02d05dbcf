"""A Keras step with dropout, batch statistics and averaged weights, cut at its gradients."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import lstm_lower as ll
from tests.support.halves import check_halves

pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")


@pytest.mark.slow
def test_halves_of_a_keras_step() -> None:
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((5, 4)),
            layers.Bidirectional(layers.LSTM(3)),
            layers.Dropout(0.3),
            layers.BatchNormalization(name="norm"),
            layers.Dense(3, activation="softmax"),
        ]
    )
    adam = keras.optimizers.Adam(0.01, clipnorm=1.0, use_ema=True)
    step = ll.from_keras(model, "sparse_categorical_crossentropy", adam, metrics=["sparse_categorical_accuracy"])
    random = np.random.default_rng(0)
    batches = [
        {"x": random.random((6, 5, 4), np.float32), "y": random.integers(0, 3, 6).astype(np.float32)} for _ in range(3)
    ]
    halves = check_halves(ir.from_proto(step), batches)
    assert halves.statistics == {f"{model.name}/norm/moving_mean", f"{model.name}/norm/moving_variance"}
    assert [name.endswith("seed_generator_state") for name in halves.streams] == [True]
