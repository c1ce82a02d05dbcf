"""Keras' optimizers in an exported step, over five steps against Keras itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.records import recipe, state

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

from tests.support.keras_models import close, eager_step  # noqa: E402

R, S = keras.optimizers, keras.optimizers.schedules
STEPS = 5

OPTIMIZERS = {
    "sgd": lambda: R.SGD(0.1),
    "momentum": lambda: R.SGD(0.1, momentum=0.9),
    "nesterov": lambda: R.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: R.Adam(0.01),
    "amsgrad": lambda: R.Adam(0.01, amsgrad=True),
    "adamw": lambda: R.AdamW(0.01, weight_decay=0.1),
    "adamax": lambda: R.Adamax(0.01),
    "nadam": lambda: R.Nadam(0.01),
    "rmsprop": lambda: R.RMSprop(0.01),
    "rmsprop_centered": lambda: R.RMSprop(0.01, momentum=0.9, centered=True),
    "adagrad": lambda: R.Adagrad(0.1),
    "adadelta": lambda: R.Adadelta(1.0),
    "adafactor": lambda: R.Adafactor(0.01),
    "ftrl": lambda: R.Ftrl(0.1, l1_regularization_strength=0.01),
    "lamb": lambda: R.Lamb(0.01),
    "lion": lambda: R.Lion(0.01),
    "muon": lambda: R.Muon(0.01),
    "schedule_free": lambda: R.ScheduleFreeAdamW(0.01),
    "clipnorm": lambda: R.SGD(1.0, clipnorm=0.05),
    "clipvalue": lambda: R.SGD(1.0, clipvalue=0.01),
    "global_clipnorm": lambda: R.Adam(0.01, global_clipnorm=0.05),
    "weight_decay": lambda: R.SGD(0.1, weight_decay=0.1),
    "exponential_decay": lambda: R.SGD(S.ExponentialDecay(0.1, 2, 0.5, staircase=True)),
    "piecewise": lambda: R.SGD(S.PiecewiseConstantDecay([1, 3], [0.1, 0.05, 0.01])),
    "polynomial": lambda: R.SGD(S.PolynomialDecay(0.1, 3, cycle=True)),
    "cosine_warmup": lambda: R.Adam(S.CosineDecay(0.1, 5, warmup_target=0.2, warmup_steps=2)),
    "cosine_restarts": lambda: R.SGD(S.CosineDecayRestarts(0.1, 2)),
    "average": lambda: R.SGD(0.1, use_ema=True, ema_momentum=0.5),
    "average_overwrites": lambda: R.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "accumulation": lambda: R.Adam(0.01, gradient_accumulation_steps=2, use_ema=True, ema_overwrite_frequency=2),
    "loss_scale": lambda: R.LossScaleOptimizer(R.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=2),
    "loss_scale_factor": lambda: R.SGD(0.1, loss_scale_factor=16.0),
}


def linear() -> tuple[Any, Any, Any]:
    """A model of two weights, one of them under a constraint, and data; what an optimizer does shows as well in it."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_constraint="unit_norm")])
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 3)).astype(np.float32)
    return model, x, rng.standard_normal((4, 2)).astype(np.float32)


def words() -> tuple[Any, Any, Any]:
    """Such a model behind rows of an Embedding that occur several times in a batch."""
    keras.utils.set_random_seed(3)
    dense = keras.layers.Dense(2, kernel_constraint="non_neg")
    layers = [keras.layers.Embedding(6, 2), keras.layers.Flatten(), dense]
    x = np.array([[1, 2, 1], [0, 1, 1], [3, 0, 3], [1, 1, 4]], np.int32)
    return keras.Sequential([keras.Input((3,), dtype="int32"), *layers]), x, linear()[2]


def follow(rule: Any, steps: int = STEPS, made: Any = linear) -> ll.Trainer:
    """Trains in Keras and here, and compares weights."""
    model, x, y = made()
    model.compile(rule, "mse", auto_scale_loss=False)
    rule.build(model.trainable_variables)
    trainer = ll.Trainer(ll.from_keras(model))
    first = model.get_weights()
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x))
            scaled = rule.scale_loss(loss)
        rule.apply(tape.gradient(scaled, model.trainable_weights), model.trainable_weights)
        assert trainer.step({"x": x, "y": y}).loss == pytest.approx(float(loss), rel=1e-5)
    held = {pair.variable: trainer.state_dict()[pair.input] for pair in trainer.state.pairs}
    for variable, before in zip(model.trainable_variables, first, strict=True):
        assert np.abs(variable.numpy() - before).max() > 1e-5
        close(held[variable.path], variable.numpy(), what=variable.path)
    return trainer


# Schedules have nothing to do with occurrences of a row, and Keras cannot divide such gradients by a factor.
_OTHER = ("cosine", "exponential", "piecewise", "polynomial", "loss_scale_factor")


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_follows_keras(name: str) -> None:
    """Weights of a Dense, and rows, whose occurrences are told apart as in Keras."""
    follow(OPTIMIZERS[name](), made=linear if name.startswith(_OTHER) else words)


@pytest.mark.slow
def test_what_reads_occurrences_reads_no_whole_gradient(tmp_path: Path) -> None:
    """The trainer's options need one; where Keras' optimizer only adds, there is one."""
    model, x, y = words()
    ll.Trainer(ll.from_keras(model, "mse", R.SGD(0.1)), clip_norm=1.0).step({"x": x, "y": y})
    with pytest.raises(ll.InvalidModelError, match=r"training options .*embeddings.*options of Keras"):
        ll.Trainer(ll.from_keras(model, "mse", R.Adam(0.1)), clip_norm=1.0)
    ll.export_training(ll.from_keras(model, "mse", R.Adam(0.1)), tmp_path / "bundle")
    about = json.loads((tmp_path / "bundle" / "training.json").read_text())
    assert about["outputs"] == []
    assert all(pair["gradient"] for pair in about["state"] if pair["role"] == "weight")


@pytest.mark.slow
def test_infinite_gradients_are_skipped() -> None:
    """The scale halves, the weights stay, and a later finite step trains on."""
    model, x, y = linear()
    rule = R.LossScaleOptimizer(R.SGD(0.1), initial_scale=8.0)
    trainer = ll.Trainer(ll.from_keras(model, "mse", rule), on_nan="ignore")
    before = trainer.state_dict()
    trainer.step({"x": x * np.float32(np.inf), "y": y})
    after = trainer.state_dict()
    by_name = {pair.variable: pair.input for pair in trainer.state.pairs}
    scale = next(name for variable, name in by_name.items() if variable.endswith("dynamic_scale"))
    assert (before[scale], after[scale]) == (8.0, 4.0)
    for variable in model.trainable_variables:
        np.testing.assert_array_equal(after[by_name[variable.path]], before[by_name[variable.path]])
    trainer.step({"x": x, "y": y})
    assert np.abs(trainer.state_dict()[by_name[model.trainable_variables[0].path]]).max() < 2


@pytest.mark.slow
def test_slots_go_on_from_their_values() -> None:
    model, x, y = linear()
    rule = R.Adam(0.01)
    model.compile(rule, "mse")
    for _ in range(3):
        eager_step(model, x, y, rule)
    trainer = ll.Trainer(ll.from_keras(model))
    eager_step(model, x, y, rule)
    trainer.step({"x": x, "y": y})
    held = {pair.variable: trainer.state_dict()[pair.input] for pair in trainer.state.pairs}
    for variable in [*model.trainable_variables, *rule._momentums, *rule._velocities]:
        close(held[variable.path], variable.numpy(), what=variable.path)
    assert any(held[name] == 4 for name in held if name.endswith("iteration"))


@pytest.mark.slow
def test_weights_left_out_of_decay_stay_out() -> None:
    rule = R.AdamW(0.01, weight_decay=0.5)
    rule.exclude_from_weight_decay(var_names=["bias"])
    follow(rule, 2)


@pytest.mark.slow
def test_schedule_leaves_no_learning_rate_to_set() -> None:
    trainer = follow(OPTIMIZERS["exponential_decay"](), 1)
    with pytest.raises(ll.InvalidInputError, match="learning_rate requires a model with a learning-rate input"):
        trainer.learning_rate = 0.1


def test_what_it_was_compiled_with_is_recorded() -> None:
    model, *_ = linear()
    rule = R.SGD(keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.25), momentum=0.75)
    step = ir.from_proto(ll.from_keras(model, keras.losses.BinaryCrossentropy(label_smoothing=0.5), rule))
    held = recipe.parse(step.metadata_props)
    assert held.loss is not None
    assert (held.loss.name, held.loss.options["label_smoothing"]) == ("BinaryCrossentropy", 0.5)
    (updates,) = held.updates
    assert (updates.optimizer.name, updates.optimizer.options["momentum"]) == ("SGD", 0.75)
    assert updates.optimizer.options["learning_rate"]["config"]["decay_rate"] == 0.25
    assert {*updates.weights} == {pair.input for pair in state.read(step).pairs if pair.role == "weight"}
    several = recipe.parse(ir.from_proto(ll.from_keras(model, ["mse"], "adam")).metadata_props)
    assert several.loss == recipe.Choice("mse", {})


def test_learning_rate_of_a_function_is_refused() -> None:
    with pytest.raises(ll.InvalidInputError, match="number or a LearningRateSchedule, got a function"):
        ll.from_keras(linear()[0], "mse", R.SGD(lambda: 0.1))


@pytest.mark.slow
def test_options_of_the_trainer_come_on_top(tmp_path: Any) -> None:
    """Clipping and accumulation here, Keras' optimizer behind; a checkpoint goes on bit for bit."""
    model, x, y = linear()
    exported = ll.from_keras(model, "mse", R.Nadam(0.01, use_ema=True, ema_overwrite_frequency=2))
    whole, first = (ll.Trainer(exported, clip_norm=0.1, accumulate=2) for _ in range(2))
    batches = [{"x": x * scale, "y": y} for scale in np.linspace(1, 2, 7, dtype=np.float32)]
    losses = [whole.step(batch).loss for batch in batches]
    assert losses[0] != losses[3]
    for batch in batches[:3]:
        first.step(batch)
    first.save(tmp_path / "checkpoint.safetensors")
    second = ll.Trainer(exported, clip_norm=0.1, accumulate=2)
    second.resume(tmp_path / "checkpoint.safetensors")
    assert [second.step(batch).loss for batch in batches[3:]] == losses[3:]
    for name, value in whole.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[name], value)
