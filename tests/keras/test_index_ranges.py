"""Labels and words that are out of range, and data of unequal sizes: a Keras model's bundle refuses them itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import lstm_lower as ll

pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")


@pytest.mark.slow
def test_a_bundle_refuses_what_keras_refuses(tmp_path: Path) -> None:
    layers = keras.layers
    words = keras.Input((None,), dtype="int32")
    hidden = layers.LSTM(4)(layers.Embedding(10, 3)(words))
    model = keras.Model(words, layers.Dense(4)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ll.export_training(ll.from_keras(model, loss, "adam", metrics=["sparse_categorical_accuracy"]), tmp_path)
    state = ort.InferenceSession(tmp_path / "init.onnx")
    held = dict(zip([value.name for value in state.get_outputs()], state.run(None, {}), strict=True))
    right = {"x": np.array([[1, 2, 3], [9, 0, 1]], np.int32), "y": np.array([3, 0])}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"x": np.array([[1, 2, -11], [9, 0, 1]], np.int32)}, "Gather"),
        ({"x": np.array([[1, 2, 10], [9, 0, 1]], np.int32)}, "Gather"),
        ({"y": np.array([-1, 0])}, "Gather"),
        ({"y": np.array([4, 0])}, "Gather"),
        ({"y": np.array([3])}, "Split"),
        ({"y": np.array([3, 0, 1])}, "Split"),
    ]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    for file in ("train.onnx", "eval.onnx"):
        session = ort.InferenceSession(tmp_path / file, options)
        taken = {value.name: value for value in session.get_inputs()}
        feeds = {name: held.get(name, np.full((), 0.1, np.float32)) for name in taken}
        feeds |= {name: array.astype(taken[name].type[7:-1]) for name, array in right.items()}
        losses = [session.run(["loss"], feeds | {"x": feeds["x"] - less}) for less in np.array([0, 10], np.int32)]
        # Keras 3 itself adds the number of words to negative ones.
        np.testing.assert_array_equal(*losses)
        for changed, node in wrong:
            others = {name: array.astype(feeds[name].dtype) for name, array in changed.items()}
            with pytest.raises(Exception, match=node):
                session.run(None, feeds | others)
