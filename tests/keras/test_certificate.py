"""What `from_keras` compares with Keras when it makes a step, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.records import certificate

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
old = pytest.importorskip("tf_keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def trained(package: Any) -> Any:
    """Repeated words, dropout, a penalty, and an optimizer with slots."""
    package.utils.set_random_seed(1)
    layers = package.layers
    model = package.Sequential([package.Input((3,), dtype="int32"), layers.Embedding(9, 4), layers.Flatten()])
    model.add(layers.Dropout(0.3))
    model.add(layers.Dense(2, kernel_regularizer="l2"))
    model.compile(package.optimizers.Adam(0.01), "mse", metrics=["mae"], run_eagerly=True)
    model.train_on_batch(np.array([[1, 1, 2]]), np.ones((1, 2), np.float32))
    return model


def held(model: Any) -> list[Any]:
    """All that a training step of a model would change."""
    slots = model.optimizer.variables
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    return [np.asarray(each.numpy()) for each in [*model.variables, *(slots() if callable(slots) else slots), *metrics]]


def recorded(step: Any) -> certificate.Certificate:
    found = certificate.parse({entry.key: entry.value for entry in step.metadata_props})
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("package", [keras, old], ids=["keras", "tf_keras"])
def test_loss_weights_and_slots_are_compared_and_the_model_stays_as_it_is(package: Any) -> None:
    model = trained(package)
    before = held(model)
    found = recorded(ll.from_keras(model))
    for kept, now in zip(before, held(model), strict=True):
        np.testing.assert_array_equal(now, kept)
    assert found.framework.startswith("Keras 3" if package is keras else "tf-keras 2")
    assert list(found.errors["loss"]) == ["loss"]
    # Weights, their two moments, the number of iterations and the state of the generator.
    assert len(found.errors["update"]) == 3 * 3 + 2
    assert max(found.errors["update"].values()) < 1e-3
    assert not found.not_compared


@pytest.mark.slow
def test_a_step_that_differs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(keras)
    monkeypatch.setattr("lstm_lower.keras.evaluation.with_penalties", lambda loss, _: loss)
    with pytest.raises(ll.UnsupportedOpError, match=r"another loss of 'loss'.*another update of .*dense.*/kernel'"):
        ll.from_keras(model)
    assert certificate.METADATA_KEY not in {entry.key for entry in ll.from_keras(model, check=False).metadata_props}


@pytest.mark.slow
def test_an_optimizer_that_loses_a_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(keras)
    own = keras.optimizers.Adam.get_config
    monkeypatch.setattr(keras.optimizers.Adam, "get_config", lambda rule: own(rule) | {"beta_2": 0.9})
    with pytest.raises(ll.UnsupportedOpError, match=r"another update of "):
        ll.from_keras(model)


@pytest.mark.slow
def test_draws_that_nobody_can_repeat_are_not_compared() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x + tf.random.uniform(tf.shape(x)))])
    model.add(keras.layers.Dense(1))
    assert "random" in recorded(ll.from_keras(model, "mse", "sgd")).not_compared["the step"]
