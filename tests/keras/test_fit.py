"""`fit`, `evaluate` and `predict` of an exported Keras model, next to Keras' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

keras: Any = pytest.importorskip("keras")
pytest.importorskip("tensorflow")

LOSS, METRIC = "sparse_categorical_crossentropy", "sparse_categorical_accuracy"


def model(dropout: float) -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input((5, 4)),
            keras.layers.LSTM(6),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(3, activation="softmax", name="classes"),
        ]
    )


def data(count: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(seed).standard_normal((count, 5, 4)).astype(np.float32)
    return x, np.abs(x[:, -1, :3]).argmax(-1)


@pytest.mark.slow
def test_history_and_accuracy_are_keras() -> None:
    train, test = data(150, 0), data(41, 1)
    theirs = model(0.0)
    mine = ll.Trainer(ll.from_keras(theirs, LOSS, keras.optimizers.Adam(0.01), metrics=[METRIC]))
    history = mine.fit(train, validation=test, epochs=4, batch_size=16, shuffle=False)
    theirs.compile(keras.optimizers.Adam(0.01), LOSS, metrics=[METRIC])
    wanted = theirs.fit(*train, validation_data=test, epochs=4, batch_size=16, shuffle=False, verbose=0).history
    for name in ("loss", METRIC, "val_loss", f"val_{METRIC}"):
        np.testing.assert_allclose(history[name], wanted[name], rtol=2e-3, atol=1e-5)
    scores = mine.evaluate(test, batch_size=16)
    loss, accuracy = theirs.evaluate(*test, batch_size=16, verbose=0)
    assert scores["loss"] == pytest.approx(loss, rel=2e-3)
    assert scores[METRIC] == pytest.approx(accuracy, abs=1e-6)
    (predicted,) = mine.predict(test[0], batch_size=16).values()
    np.testing.assert_allclose(predicted, theirs.predict(test[0], verbose=0), rtol=2e-2, atol=2e-4)


@pytest.mark.slow
def test_dropout_is_off_and_nothing_changes() -> None:
    test = data(20, 1)
    theirs = model(0.5)
    mine = ll.Trainer(ll.from_keras(theirs, LOSS, keras.optimizers.Adam(0.01), metrics=[METRIC]))
    before = mine.state_dict()
    scores = [mine.evaluate(test, batch_size=size) for size in (7, 20, 20)]
    theirs.compile(loss=LOSS, metrics=[METRIC])
    assert scores[1] == scores[2]
    for score in scores:
        assert score["loss"] == pytest.approx(theirs.evaluate(*test, verbose=0)[0], rel=1e-5)
    (predicted,) = mine.predict(test).values()
    np.testing.assert_allclose(predicted, theirs.predict(test[0], verbose=0), rtol=1e-5, atol=1e-6)
    for name, array in mine.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.slow
@pytest.mark.parametrize("as_dataset", [False, True])
def test_labels_of_any_dtype_and_with_a_last_axis_or_without(as_dataset: bool) -> None:
    x, labels = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32), np.array([0, 1] * 4)
    keras.utils.set_random_seed(3)
    theirs = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activation="sigmoid")])
    theirs.compile("adam", "binary_crossentropy")
    mine = ll.Trainer(ll.from_keras(theirs))
    for y in (labels, labels[:, None], labels.astype(bool), labels.astype(np.float64)):
        batches = pytest.importorskip("tensorflow").data.Dataset.from_tensors((x, y))
        history = mine.fit(batches if as_dataset else (x, y), epochs=1, batch_size=8)
        plain = labels[:, None].astype(np.float32)
        wanted = theirs.fit(x, plain, batch_size=8, epochs=1, verbose=0).history
        np.testing.assert_allclose(history["loss"], wanted["loss"], rtol=1e-5)
        assert mine.evaluate((x, y))["loss"] == pytest.approx(theirs.evaluate(x, plain, verbose=0), rel=1e-5)
