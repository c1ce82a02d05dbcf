"""Specifications from data as Keras' `fit` takes them, and training on the same data: both are Keras'."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import LstmLowerWarning

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

L = keras.layers
RNG = np.random.default_rng(0)
X, B = RNG.standard_normal((12, 5, 3)).astype(np.float32), RNG.random((12, 2)).astype(np.float32)
Y, D, W = RNG.integers(0, 3, 12), RNG.random((12, 1)).astype(np.float32), RNG.random(12).astype(np.float32)
SPARSE = "sparse_categorical_crossentropy"


def unbuilt(framework: Any = keras) -> Any:
    framework.utils.set_random_seed(1)
    layers = framework.layers
    model = framework.Sequential([layers.SimpleRNN(4), layers.Dense(3, activation="softmax")])
    model.compile("adam", SPARSE, weighted_metrics=["accuracy"])
    return model


def several(*, names: bool) -> Any:
    keras.utils.set_random_seed(1)
    a, b = keras.Input((5, 3), name="a"), keras.Input((2,), name="b")
    h = L.Concatenate()([L.SimpleRNN(4)(a), b])
    c, d = L.Dense(3, activation="softmax", name="c")(h), L.Dense(1, name="d")(h)
    model = keras.Model({"a": a, "b": b}, {"c": c, "d": d}) if names else keras.Model([a, b], [c, d])
    model.compile("sgd", {"c": SPARSE, "d": "mse"} if names else [SPARSE, "mse"], weighted_metrics=[])
    return model


def slices() -> Iterator[slice]:
    return (slice(i, i + 4) for i in range(0, 12, 4))


def generator() -> Iterator[Any]:
    return ((X[rows], Y[rows], W[rows]) for rows in slices())


def dataset(framework: Any) -> Any:
    class Numbered(getattr(framework.utils, "PyDataset", framework.utils.Sequence)):  # type: ignore[misc]
        ended = 0

        def __len__(self) -> int:
            return 3

        def __getitem__(self, number: int) -> Any:
            rows = slice(4 * number, 4 * number + 4)
            return X[rows], Y[rows], W[rows]

        def on_epoch_end(self) -> None:
            self.ended += 1

    return Numbered()


def sliced(*arrays: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(arrays).batch(4)


def check(make: Any, data: Any, theirs: Any, epochs: int) -> ll.Trainer:
    """Trains ours on the very data that it was specified by, and a twin in Keras; weights must be equal."""
    model = make()
    trainer = ll.Trainer(ll.from_keras(model, data=data))
    losses = trainer.fit(data, epochs=epochs)["loss"]
    twin = make()
    expected = twin.fit(theirs, epochs=epochs, verbose=0, shuffle=False).history["loss"]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    trainer.to_keras(model)
    for mine, other in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    return trainer


@pytest.mark.slow
def test_an_iterator_loses_no_batch() -> None:
    data = generator()
    trainer = check(unbuilt, data, generator(), 1)
    assert trainer.steps == 3
    assert trainer.inputs == ["x", "y", "sample_weight"]
    assert next(data, None) is None
    with pytest.raises(ll.InvalidInputError, match="got a list_iterator, whose first batch would be lost; a function"):
        ll.from_keras(unbuilt(), data=iter([(X, Y)]))


@pytest.mark.slow
@pytest.mark.parametrize("legacy", [False, True])
def test_batches_by_number(*, legacy: bool) -> None:
    framework = pytest.importorskip("tf_keras") if legacy else keras
    data = dataset(framework)
    check(lambda: unbuilt(framework), data, dataset(framework), 2)
    assert data.ended == 2


@pytest.mark.slow
@pytest.mark.parametrize("names", [False, True])
def test_datasets_of_several_inputs_outputs_and_weights(*, names: bool) -> None:
    parts: list[Any] = [{"a": X, "b": B}, {"c": Y, "d": D}, {"c": W, "d": 2 * W}]
    if not names:
        parts = [tuple(part.values()) for part in parts]
    trainer = check(lambda: several(names=names), sliced(*parts), sliced(*parts), 2)
    assert trainer.inputs == ["x/a", "x/b", "y/c", "y/d", "sample_weight/c", "sample_weight/d"]


@pytest.mark.slow
def test_weights_of_one_output_of_several() -> None:
    model, twin = several(names=True), several(names=True)
    trainer = ll.Trainer(ll.from_keras(model, sample_weight={"d": True}))
    x, y = {"a": X, "b": B}, {"c": Y, "d": D}
    loss = trainer.step({"x/a": X, "x/b": B, "y/c": Y, "y/d": D, "sample_weight/d": W}).loss
    weights = {"c": np.ones(12, np.float32), "d": W}
    assert loss == pytest.approx(float(np.ravel(twin.train_on_batch(x, y, sample_weight=weights))[0]), rel=1e-5)
    with pytest.raises(ll.InvalidInputError, match=r"sample_weight requires the outputs \['c', 'd'\], got \['e'\]"):
        ll.from_keras(model, sample_weight={"e": True})


def test_what_data_say() -> None:
    """Sizes that differ are open; what is given besides goes before."""
    batches = [(X[:4], Y[:4, None]), (X[4:, :3], Y[4:, None])]
    step = ll.Trainer(ll.from_keras(unbuilt(), data=lambda: batches))
    shapes = {value.name: value.shape for value in step.data_inputs}
    assert [len(shapes["x"]), shapes["x"][2], shapes["y"]] == [3, 3, ["batch", 1]]
    assert not isinstance(shapes["x"][1], int)
    step = ll.Trainer(ll.from_keras(unbuilt(), data=(X, Y), target_spec=tf.TensorSpec((None, 1), tf.int64)))
    assert {value.name: value.shape for value in step.data_inputs} == {"x": ["batch", 5, 3], "y": ["batch", 1]}
    with pytest.raises(ll.InvalidInputError, match="data requires at least one batch, got none"):
        ll.from_keras(unbuilt(), data=lambda: ())
    with pytest.raises(ll.InvalidInputError, match="data requires what fit takes, got int"):
        ll.from_keras(unbuilt(), data=3)
    with pytest.raises(ll.InvalidInputError, match="data requires batches of one kind"):
        ll.from_keras(unbuilt(), data=[(X, Y), (X, D)])


def test_steps_per_execution() -> None:
    model = unbuilt()
    model.compile("adam", SPARSE, steps_per_execution=3)
    with pytest.warns(LstmLowerWarning, match="steps_per_execution=3, .*is ignored: each batch is a step"):
        ll.from_keras(model, data=(X, Y))
