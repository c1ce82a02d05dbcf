"""What evaluates a step of a Keras model, against Keras' own `evaluate` and `predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError
from lstm_lower.passes.training.evaluation import evaluation_of, predictions_of
from lstm_lower.records import model_files

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
keras = pytest.importorskip("keras", reason="Keras is not installed")

from lstm_lower.keras.evaluation import LeftOutMetricWarning  # noqa: E402


def _classifier() -> Any:
    keras.utils.set_random_seed(0)
    x = keras.Input((6, 3))
    hidden = keras.layers.LSTM(5, dropout=0.2, recurrent_dropout=0.2, kernel_regularizer="l2")(x)
    hidden = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization()(hidden))
    return keras.Model(x, keras.layers.Dense(3, activation="softmax", name="classes")(hidden))


def _two_outputs() -> Any:
    keras.utils.set_random_seed(1)
    x = keras.Input((6, 3))
    hidden = keras.layers.Dropout(0.5)(keras.layers.GRU(4)(x))
    outputs = [keras.layers.Dense(2, name="x")(hidden), keras.layers.Dense(1, name="second")(hidden)]
    return keras.Model(x, outputs)


class OwnStep(keras.Model):
    """Trains by itself, and is evaluated as Keras does it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(2)
        self.drop = keras.layers.Dropout(0.5)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.drop(self.layer(x), training=training)

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def _evaluated(step: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    trainer = ll.Trainer(step)
    found = evaluation_of(model_files.load(step))
    inputs = {value.name for value in found.graph.inputs}
    state = {name: value for name, value in trainer.state_dict().items() if name in inputs}
    made = ll.Session(found).run({name: x for name, x in feeds.items() if name in inputs} | state)
    return made | {"predictions": predictions_of(found)}


@pytest.mark.slow
def test_equals_evaluate_and_predict() -> None:
    model = _classifier()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=True)
    random = np.random.default_rng(0)
    x, y = random.standard_normal((8, 6, 3), np.float32), random.integers(0, 3, 8)
    # Statistics move.
    model.train_on_batch(x, y)
    wanted = model.evaluate(x, y, verbose=0, return_dict=True)
    # Feeds are cast as those of the step are.
    made = _evaluated(ll.from_keras(model, class_weight={0: 2.0}), {"x": x.astype(np.float64), "y": y.astype(np.int32)})
    np.testing.assert_allclose(made["loss"], wanted["loss"], rtol=1e-5)
    np.testing.assert_allclose(made["accuracy"], wanted["accuracy"])
    assert made["predictions"] == ["classes"]
    np.testing.assert_allclose(made["classes"], model.predict(x, verbose=0), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_targets_of_a_branch_are_needed_by_the_loss_alone() -> None:
    """Hinge looks whether its labels are 0 and 1, in a branch."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    trainer = ll.Trainer(ll.from_keras(model, keras.losses.Hinge(), "sgd"))
    x = np.random.default_rng(0).standard_normal((4, 3), np.float32)
    (predicted,) = trainer.predict({"x": x}).values()
    np.testing.assert_allclose(predicted, model.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    for y in (np.array([[0.0], [1], [1], [0]], np.float32), np.array([[-1.0], [1], [1], [-1]], np.float32)):
        wanted = float(keras.ops.mean(keras.losses.Hinge()(y, predicted)))
        assert trainer.evaluate({"x": x, "y": y})["loss"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.slow
def test_several_outputs() -> None:
    model = _two_outputs()
    step = ll.from_keras(model, ["mse", "mse"], "sgd", loss_weights=[1.0, 0.5])
    x = np.random.default_rng(0).standard_normal((4, 6, 3), np.float32)
    targets = {"y/x": np.zeros((4, 2), np.float32), "y/second": np.ones((4, 1), np.float32)}
    made = _evaluated(step, {"x": x, **targets})
    first, second = model.predict(x, verbose=0)
    assert made["predictions"] == ["x_output", "second"]
    np.testing.assert_allclose(made["x_loss"], (first**2).mean(), rtol=1e-5)
    np.testing.assert_allclose(made["loss"], (first**2).mean() + 0.5 * ((second - 1) ** 2).mean(), rtol=1e-5)
    np.testing.assert_allclose(made["x_output"], first, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(made["second"], second, rtol=1e-5, atol=1e-6)


class Counting(keras.layers.Layer):
    """Multiplies by the number of its calls, in any mode."""

    def build(self, _: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="ones", trainable=False)

    def call(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        return x * self.calls


STATEFUL = {
    "lstm": lambda layers: [layers.LSTM(3, stateful=True)],
    "both directions": lambda layers: [layers.Masking(), layers.Bidirectional(layers.GRU(2, stateful=True))],
    "own state": lambda layers: [Counting(), layers.GRU(3)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEFUL)
def test_evaluation_moves_states_as_keras_does(name: str, tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    stack = STATEFUL[name](keras.layers)
    model = keras.Sequential([keras.Input(batch_shape=(4, 5, 3)), *stack, keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], run_eagerly=True)
    trainer = ll.Trainer(ll.from_keras(model))
    random = np.random.default_rng(0)
    x, y = random.standard_normal((8, 5, 3), np.float32), random.standard_normal((8, 2), np.float32)
    x[1, 3:] = 0

    def close_states() -> None:
        layers = list(model._flatten_layers())
        states = keras.tree.flatten([getattr(layer, "states", None) or [] for layer in layers])
        variables = list({id(variable): variable for variable in [*model.weights, *states]}.values())
        held, paths = trainer.state_dict(), [variable.path for variable in variables]
        for number, variable in enumerate(variables):
            # States of one layer share a path.
            name = variable.path + (f"_{again}" if (again := paths[:number].count(variable.path)) else "")
            np.testing.assert_allclose(held[name], variable.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)

    for _ in range(2):
        model.reset_metrics()
        wanted = model.train_on_batch(x[:4], y[:4], return_dict=True)
        assert trainer.step({"x": x[:4], "y": y[:4]}).loss == pytest.approx(wanted["loss"], rel=1e-4)
        wanted = model.evaluate(x, y, batch_size=4, verbose=0, return_dict=True)
        scores = trainer.evaluate({"x": x, "y": y}, batch_size=4)
        assert [scores["loss"], scores["mae"]] == pytest.approx([wanted["loss"], wanted["mae"]], rel=1e-4)
        close_states()
        (predicted,) = trainer.predict({"x": x}, batch_size=4).values()
        np.testing.assert_allclose(predicted, model.predict(x, batch_size=4, verbose=0), rtol=1e-4, atol=1e-5)
        close_states()
    before = trainer.state_dict()
    source = trainer.evaluator.scoring_source({"x": x, "y": y})
    assert trainer.evaluator.evaluate(source, 4, lambda: True) is None
    for path, array in trainer.state_dict().items():
        np.testing.assert_array_equal(array, before[path])
    with pytest.raises(UnsupportedOpError, match="requires state that stays"):
        trainer.export(tmp_path / "predict.onnx")


@pytest.mark.slow
def test_model_with_a_step_of_its_own() -> None:
    keras.utils.set_random_seed(0)
    model = OwnStep()
    x, y = np.random.default_rng(0).standard_normal((4, 3), np.float32), np.zeros((4, 2), np.float32)
    model.compile("sgd", "mse", run_eagerly=True)
    model.train_on_batch(x, y)
    made = _evaluated(ll.from_keras(model, input_spec=tf.TensorSpec([None, 3])), {"x": x, "y": y})
    np.testing.assert_allclose(made["loss"], model.evaluate(x, y, verbose=0), rtol=1e-5)
    (name,) = made["predictions"]
    np.testing.assert_allclose(made[name], model.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


def _metrics(package: Any) -> list[Any]:
    named = package.metrics
    return [
        named.AUC(name="auc"),
        named.Precision(name="precision"),
        named.F1Score(name="f1"),
        named.RootMeanSquaredError(name="root"),
        "mae",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_metrics_count_over_all_batches_as_in_keras(package: str, tmp_path: Path) -> None:
    """Means of AUC and the like over batches are other numbers; a weighted mean is not weighted by rows."""
    made = pytest.importorskip(package)
    made.utils.set_random_seed(0)
    model = made.Sequential([made.Input((3,)), made.layers.Dense(2, activation="sigmoid")])
    model.compile("sgd", "mse", metrics=_metrics(made), weighted_metrics=["mse"], run_eagerly=True)
    random = np.random.default_rng(0)
    x, y = random.standard_normal((22, 3), np.float32), (random.random((22, 2)) < 0.4).astype(np.float32)
    weight = np.linspace(0, 2, 22, dtype=np.float32)
    # What the metrics counted before is theirs alone.
    model.fit(x, y, verbose=0)
    before = [variable.numpy() for metric in model.metrics for variable in metric.variables]
    step = ll.from_keras(model, sample_weight=True)
    for variable, array in zip([v for metric in model.metrics for v in metric.variables], before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), array)
    data = {"x": x, "y": y, "sample_weight": weight}
    trainer = ll.Trainer(step)
    results = model.evaluate(x, y, batch_size=8, sample_weight=weight, verbose=0, return_dict=True)
    f1 = results.pop("f1")
    wanted = results | {f"f1/{number}": f1[number] for number in range(2)}
    for _ in range(2):
        assert trainer.evaluate(data, batch_size=8) == pytest.approx(wanted, rel=1e-5)
    folder = ll.export_training(trainer, tmp_path / "bundle")
    assert _evaluated_by_a_loop(folder, data, 8) == pytest.approx(wanted, rel=1e-5)


def _evaluated_by_a_loop(folder: Path, data: dict[str, Any], size: int) -> dict[str, float]:
    """What a loop with onnxruntime alone makes of a bundle's `eval.onnx`."""
    about = json.loads((folder / "training.json").read_text())
    init, evaluation = (ort.InferenceSession(folder / f"{name}.onnx") for name in ("init", "eval"))
    part = about["eval"]
    state = dict(zip([value.name for value in init.get_outputs()], init.run(None, {}), strict=True))
    # One number for all elements; `first` may be a list of all of them elsewhere.
    totals = {entry["input"]: np.full(entry["shape"], entry["first"], entry["dtype"]) for entry in part["totals"]}
    names = [about["loss"], *[metric["name"] for metric in part["metrics"]]]
    moving = {entry["output"]: entry["input"] for entry in part["totals"]}
    sums, rows = dict.fromkeys(names, 0.0), len(data["x"])
    for start in range(0, rows, size):
        batch = {name: array[start : start + size] for name, array in data.items()}
        feeds = {name: state[name] for name in part["state"]} | batch | totals
        outputs = dict(zip([*names, *moving], evaluation.run([*names, *moving], feeds), strict=True))
        totals = {name: outputs[output] for output, name in moving.items()}
        sums = {name: total + float(outputs[name]) * len(batch["x"]) / rows for name, total in sums.items()}
    return {name: float(outputs[name]) if name in part["of_all_batches"] else total for name, total in sums.items()}


@pytest.mark.slow
def test_metrics_of_a_step_are_those_of_its_batch_alone() -> None:
    """Also where the metric counted before, in Keras."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[keras.metrics.MeanAbsoluteError(name="mae")])
    x, y = np.ones((4, 3), np.float32), np.full((4, 1), 9, np.float32)
    model.fit(x, 3 * y, verbose=0)
    wanted = float(np.abs(model.predict(x, verbose=0) - y).mean())
    result = ll.Trainer(ll.from_keras(model)).step({"x": x, "y": y}, outputs=["mae"])
    assert result.outputs["mae"] == pytest.approx(wanted, rel=1e-5)


class Confusion(keras.metrics.Metric):
    """A matrix, of which `evaluate` makes no number."""

    def __init__(self) -> None:
        super().__init__(name="confusion")
        self.counts = self.add_variable((2, 2), "zeros", name="counts")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:  # noqa: ARG002
        self.counts.assign_add(keras.ops.matmul(keras.ops.transpose(y_true), y_pred))

    def result(self) -> Any:
        return self.counts


@pytest.mark.slow
def test_metrics_that_are_no_numbers_are_left_out_by_name() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", metrics=[Confusion(), "mae"])
    with pytest.warns(LeftOutMetricWarning, match="leaves out the metrics confusion, which"):
        step = ll.from_keras(model)
    scores = ll.Trainer(step).evaluate({"x": np.ones((4, 3), np.float32), "y": np.ones((4, 2), np.float32)})
    assert scores.keys() == {"loss", "mae"}
