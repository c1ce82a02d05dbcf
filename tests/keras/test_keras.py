"""Keras models exported in one call: what goes in and out, losses, metrics, weights of samples, training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.records import state

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

from tests.support.keras_models import LOSS, build, close, data, eager_step  # noqa: E402

L = keras.layers


def recorded(exported: Any) -> state.TrainingState:
    return state.parse({entry.key: entry.value for entry in exported.metadata_props})


def train(
    model: Any, x: Any, y: Any, feeds: dict[str, Any], exported: Any = None, steps: int = 2, **weights: Any
) -> ll.Trainer:
    """The compiled model in Keras' own training loop and in ours, and its weights compared."""
    trainer = ll.Trainer(exported or ll.from_keras(model, sample_weight="sample_weight" in feeds))
    first = trainer.step(feeds, [name for name in trainer.outputs if not name.startswith(("grad/", "loss"))][:9])
    logs = model.train_on_batch(x, y, return_dict=True, **weights)
    for name, expected in logs.items():
        got = first.loss if name == "loss" else first.outputs[name]
        assert float(got) == pytest.approx(float(expected), rel=1e-5, abs=1e-6), name
    for _ in range(steps - 1):
        trainer.step(feeds)
        model.train_on_batch(x, y, **weights)
    held = {pair.variable: trainer.state_dict()[pair.input] for pair in trainer.state.pairs}
    for variable in model.trainable_variables:
        close(held[variable.path], variable.numpy(), what=variable.path)
    return trainer


@pytest.mark.slow
def test_one_input_and_one_output() -> None:
    model = build(L.LSTM(4))
    model.compile(
        keras.optimizers.Adam(0.01), LOSS, metrics=["accuracy", "sparse_categorical_accuracy"], run_eagerly=True
    )
    x, y = data()
    before = model.get_weights()
    exported = ll.from_keras(model)
    for value, kept in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, kept)
    assert [value.name for value in exported.graph.input[:2]] == ["x", "y"]
    assert {"loss", "accuracy", "sparse_categorical_accuracy"} < {value.name for value in exported.graph.output}
    pairs = {pair.variable: pair for pair in recorded(exported).pairs}
    for variable in model.trainable_variables:
        assert (pairs[variable.path].role, pairs[variable.path].gradient) == ("weight", f"grad/{variable.path}")
    assert recorded(exported).loss == "loss"
    assert train(model, x, y, {"x": x, "y": y}, exported).learning_rate == pytest.approx(0.01)


@pytest.mark.slow
def test_encoder_and_decoder() -> None:
    """Two inputs, states of one layer for another, a target and a weight per step."""
    keras.utils.set_random_seed(3)
    source, target = keras.Input((3, 2), name="source"), keras.Input((2, 2), name="target")
    _, h, c = L.LSTM(3, return_state=True)(L.Masking()(source))
    decoded = L.LSTM(3, return_sequences=True)(target, initial_state=[h, c])
    model = keras.Model([source, target], L.Dense(3, activation="softmax")(decoded))
    x, _ = data()
    y = np.array([[0, 1], [2, 1], [0, 0], [1, 2], [2, 2]])
    model.compile(keras.optimizers.SGD(0.5), LOSS, run_eagerly=True)
    train(model, [x, x[:, :2]], y, {"x/source": x, "x/target": x[:, :2], "y": y})
    exported = ll.from_keras(model, what="input_gradient", sample_weight=tf.TensorSpec([None, 2]))
    weight = np.linspace(0, 1, 10, dtype=np.float32).reshape(5, 2)
    feeds = {"x/source": x, "x/target": x[:, :2], "y": y, "sample_weight": weight}
    results = ll.Session(exported).run(feeds)
    inputs = [tf.constant(x), tf.constant(x[:, :2])]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = model.compute_loss(inputs, y, model(inputs, training=True), weight)
    for name, expected in zip(("source", "target"), tape.gradient(loss, inputs), strict=True):
        close(results[f"grad/x/{name}"], expected.numpy())


def several_outputs(*, names: bool) -> Any:
    keras.utils.set_random_seed(3)
    x = keras.Input((3, 2))
    h = L.GRU(3, return_sequences=True)(x)
    tags = L.Dense(3, activation="softmax", name="tags")(h)
    level, rest = L.Dense(1, name="level")(h[:, -1]), L.Dense(2, name="rest")(h[:, 0])
    return keras.Model(x, {"tags": tags, "level": level, "rest": rest} if names else [tags, level, rest])


@pytest.mark.slow
@pytest.mark.parametrize("names", [False, True])
def test_several_outputs(*, names: bool) -> None:
    """Losses, their weights and metrics by name; an output without any needs no target."""
    model = several_outputs(names=names)
    losses: Any = {"tags": LOSS, "level": "mse", "rest": None}
    weights: Any = {"tags": 0.25, "level": 2.0, "rest": 0.0}
    if not names:
        losses, weights = list(losses.values()), list(weights.values())
    model.compile(
        "sgd", losses, weights, metrics={"tags": ["accuracy"], "level": ["mae"]} if names else None, run_eagerly=True
    )
    x, level = data()
    targets = {"tags": np.stack([level, level, level], 1), "level": level[:, None].astype(np.float32)}
    exported = ll.from_keras(model)
    assert [value.name for value in exported.graph.input if value.name[0] == "y"] == (
        ["y/level", "y/tags"] if names else ["y/tags", "y/level"]
    )
    trainer = ll.Trainer(exported)
    feeds = {"x": x} | {f"y/{name}": y for name, y in targets.items()}
    measured = ["tags_accuracy", "level_mae"] if names else []
    result = trainer.step(feeds, ["tags_loss", "level_loss", *measured])
    predictions = model(x)
    flat = predictions if names else dict(zip(("tags", "level", "rest"), predictions, strict=True))
    tags = float(tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(targets["tags"], flat["tags"])))
    squares = float(tf.reduce_mean((flat["level"] - targets["level"]) ** 2))
    assert float(result.outputs["tags_loss"]) == pytest.approx(tags, rel=1e-5)
    assert float(result.outputs["level_loss"]) == pytest.approx(squares, rel=1e-5)
    assert result.loss == pytest.approx(0.25 * tags + 2 * squares, rel=1e-5)
    if names:
        right = np.argmax(flat["tags"], -1) == targets["tags"]
        assert float(result.outputs["tags_accuracy"]) == pytest.approx(right.mean())
        distance = np.abs(np.asarray(flat["level"]) - targets["level"]).mean()
        assert float(result.outputs["level_mae"]) == pytest.approx(float(distance), rel=1e-5)


@pytest.mark.slow
def test_several_outputs_train_as_in_keras() -> None:
    x, y = data()
    keras.utils.set_random_seed(3)
    given = keras.Input((3, 2))
    h = L.LSTM(3)(given)
    model = keras.Model(given, [L.Dense(3, activation="softmax", name="kind")(h), L.Dense(1, name="size")(h)])
    model.compile("sgd", {"kind": LOSS, "size": "mae"}, {"kind": 1.0, "size": 0.5}, run_eagerly=True)
    size = np.linspace(0, 1, 5, dtype=np.float32)[:, None]
    weight = np.array([1, 0, 2, 1, 0.5], np.float32)
    feeds = {"x": x, "y/kind": y, "y/size": size, "sample_weight": weight}
    train(model, x, [y, size], feeds, sample_weight=[weight, weight])


@pytest.mark.slow
def test_subclassed_model() -> None:
    """Inputs as a dictionary, which only the call knows."""

    class Reader(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = L.LSTM(3), L.Dense(3, activation="softmax")

        def call(self, inputs: Any) -> Any:
            return self.head(self.lstm(inputs["rows"]) * inputs["scale"])

    keras.utils.set_random_seed(3)
    model, (x, y) = Reader(), data()
    inputs = {"rows": x, "scale": np.linspace(0, 1, 5, dtype=np.float32)[:, None]}
    model(inputs)
    with pytest.raises(ll.InvalidInputError, match="requires input_spec"):
        ll.from_keras(model, LOSS, "sgd")
    specs = {"rows": tf.TensorSpec([None, 3, 2]), "scale": tf.TensorSpec([None, 1])}
    exported = ll.from_keras(model, LOSS, input_spec=specs, what="gradients")
    results = ll.Session(exported).run({f"x/{name}": value for name, value in inputs.items()} | {"y": y})
    model.compile("sgd", LOSS, run_eagerly=True)
    loss, gradients = eager_step(model, inputs, y)
    assert float(results["loss"]) == pytest.approx(loss, rel=1e-5)
    for variable, expected in zip(model.trainable_variables, gradients, strict=True):
        close(results[f"grad/{variable.path}"], expected)


@pytest.mark.slow
def test_weights_of_classes() -> None:
    model = build(L.SimpleRNN(3))
    model.compile("sgd", LOSS, run_eagerly=True)
    x, y = data()
    weights = {0: 0.5, 2: 3.0}
    results = ll.Session(ll.from_keras(model, class_weight=weights, what="gradients")).run({"x": x, "y": y})
    assert float(results["loss"]) == pytest.approx(
        float(model.train_on_batch(x, y, class_weight=weights, return_dict=True)["loss"]), rel=1e-5
    )


@pytest.mark.slow
def test_functions_as_losses_and_metrics() -> None:
    model = build(L.LSTM(3))
    x, y = data()
    exported = ll.from_keras(
        model,
        lambda target, prediction: tf.reduce_sum(tf.square(prediction - tf.one_hot(tf.cast(target, tf.int32), 3)), -1),
        target_spec=tf.TensorSpec([None], tf.int32),
        what="gradients",
        metrics={"right": lambda target, prediction: tf.gather(prediction, target, batch_dims=1)},
    )
    results = ll.Session(exported).run({"x": x, "y": y.astype(np.int32)})
    prediction = model(x).numpy()
    assert float(results["loss"]) == pytest.approx(((prediction - np.eye(3)[y]) ** 2).sum(1).mean(), rel=1e-5)
    assert float(results["right"]) == pytest.approx(prediction[np.arange(5), y].mean(), rel=1e-5)


@pytest.mark.slow
def test_half_precision_model_has_its_loss_scaled() -> None:
    """As `compile` does; weights and slots are float32."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = build(L.LSTM(4))
        model.compile(keras.optimizers.Adam(0.01), LOSS, run_eagerly=True)
        exported = ll.from_keras(model)
        small = keras.Sequential([keras.Input((3,)), L.Dense(1)])
        named = ll.from_keras(small, "mse", "adam")
    finally:
        keras.config.set_dtype_policy("float32")
    x, y = data()
    trainer = ll.Trainer(exported)
    for step in range(3):
        loss = float(model.train_on_batch(x, y))
        assert trainer.step({"x": x, "y": y}).loss == pytest.approx(loss, rel=2e-2) or step
    held = {pair.variable: trainer.state_dict()[pair.input] for pair in trainer.state.pairs}
    assert {array.dtype for array in held.values()} <= {np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int64)}
    for variable in model.trainable_variables:
        close(held[variable.path], variable.numpy(), 2e-2, variable.path)
    assert any("dynamic_scale" in (pair.variable or "") for pair in recorded(named).pairs)
    with pytest.raises(ll.InvalidModelError, match="training options require the weights' gradients"):
        ll.Trainer(named, clip_norm=1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"what": "gradient"}, "what requires one of"),
        ({}, "optimizer requires a name or a Keras optimizer, got none"),
        ({"optimizer": "sgd"}, "nor do its layers add any"),
        ({"loss": LOSS}, "optimizer requires a name"),
        ({"loss": LOSS, "optimizer": "sdg"}, "optimizer requires a name or a Keras optimizer, got 'sdg'"),
        ({"loss": "no_such"}, "loss and loss_weights require what fits the outputs"),
        ({"loss": LOSS, "metrics": ["no_such"]}, "metrics requires what fits the outputs"),
        ({"loss": LOSS, "input_spec": 3}, "input_spec requires tf.TensorSpec"),
        ({"loss": LOSS, "target_spec": 3}, "target_spec requires tf.TensorSpec"),
        ({"loss": LOSS, "sample_weight": 3}, "sample_weight requires True"),
        ({"loss": LOSS, "sample_weight": True, "class_weight": {0: 1.0}}, "class_weight requires a step without"),
        (
            {"loss": lambda *_: None, "optimizer": "sgd"},
            "target_spec and sample_weight require what fits .*None values",
        ),
        ({"loss": LOSS, "optimizer": {"lr": 1}}, "optimizer requires a name or a Keras optimizer, got {'lr': 1}"),
        ({"loss": LOSS, "metrics": {"m": "mae"}}, "require functions of targets and predictions, got 'mae' for 'm'"),
        ({"loss": LOSS, "input_spec": tf.TensorSpec((None, 3, 9))}, r"what model .* got float32 \(None, 3, 9\)"),
        ({"loss": LOSS, "target_spec": tf.TensorSpec(None)}, "target_spec requires a known number of axes"),
        ({"loss": LOSS, "class_weight": {"a": 1.0}}, "class numbers from 0 on and finite weights, got 'a': 1.0"),
        ({"loss": LOSS, "loss_weights": ["a"]}, "loss_weights requires finite numbers, got 'a'"),
        ({"loss": LOSS, "training": "no"}, "training requires True or False, got 'no'"),
        ({"losses": LOSS}, "from_keras requires model, loss, .* got an unexpected keyword argument 'losses'"),
    ],
)
def test_arguments_that_do_not_fit(arguments: Any, message: str) -> None:
    with pytest.raises(ll.InvalidInputError, match=message):
        ll.from_keras(build(L.SimpleRNN(2)), **arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "labels", "shape"),
    [
        ("float32", "int32", (5,)),
        ("float32", "float32", (5, 1)),
        ("float32", "uint8", (5, 1)),
        ("float64", "bool", (5,)),
        ("int32", "float64", (5,)),
        ("uint8", "int64", (5,)),
    ],
)
def test_feeds_are_cast_as_keras_casts_them(dtype: str, labels: str, shape: tuple[int, ...]) -> None:
    model, (x, y) = build(L.GlobalAveragePooling1D()), data()
    model.compile("sgd", LOSS, metrics=["accuracy"], run_eagerly=True)
    x, y = np.abs(3 * x).astype(dtype), y.astype(labels).reshape(shape)
    train(model, x, y, {"x": x, "y": y})


@pytest.mark.slow
def test_columns_may_be_left_out() -> None:
    keras.utils.set_random_seed(3)
    model, (x, y) = keras.Sequential([keras.Input((3, 2)), L.GRU(3), L.Dense(1)]), data()
    model.compile("sgd", "mse", run_eagerly=True)
    train(model, x, y, {"x": x, "y": y, "sample_weight": y[:, None]}, sample_weight=y[:, None])
    with pytest.raises(ll.InvalidInputError, match=r"input 'y' requires rank 2 .*got shape \[5, 1, 2\]"):
        ll.Session(ll.from_keras(model, what="gradients")).run({"x": x, "y": y[:, None, None][..., [0, 0]]})


def test_model_without_weights_is_refused() -> None:
    with pytest.raises(ll.InvalidInputError, match="requires input_spec or data, since it is not built"):
        ll.from_keras(keras.Sequential([L.LSTM(2)]), LOSS, "sgd")


@pytest.mark.slow
def test_a_model_of_another_backend_is_saved_there_and_loaded_here(tmp_path: Path) -> None:
    """The error's way on, and the way back: a step is made here, and trains the model there."""
    pytest.importorskip("torch")
    x, y = np.random.default_rng(0).random((8, 5, 4), np.float32), np.arange(8) % 3
    np.savez(tmp_path / "data.npz", x=x, y=y)

    program = """
import keras, numpy as np, lstm_lower as ll
data = dict(np.load('data.npz'))
model = keras.Sequential([keras.Input((5, 4)), keras.layers.LSTM(6), keras.layers.Dense(3, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(data["x"], data["y"], verbose=0)
try:
    ll.from_keras(model)
except ll.InvalidInputError as error:
    assert "got 'torch'; save the model (model.save('model.keras'))" in str(error), error
else:
    raise AssertionError
model.save("model.keras")
np.save("predicted.npy", model.predict(data["x"], verbose=0))
print("saved", flush=True)
input()
model, trainer = keras.saving.load_model("model.keras"), ll.Trainer("step.onnx")
for _ in range(3):
    trainer.step(data)
trainer.to_keras(model)
(predicted,) = trainer.predict({"x": data["x"]}).values()
np.testing.assert_allclose(model.predict(data["x"], verbose=0), predicted, rtol=1e-5, atol=1e-6)
"""
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=tmp_path, **pipes) as there:
        assert there.stdout is not None
        assert there.stdout.readline() == "saved\n"
        model = keras.saving.load_model(tmp_path / "model.keras", compile=False)
        close(model.predict(x, verbose=0), np.load(tmp_path / "predicted.npy"))
        onnx.save(ll.from_keras(model, "sparse_categorical_crossentropy", "adam"), tmp_path / "step.onnx")
        there.communicate("made\n", timeout=600)
    assert there.returncode == 0
