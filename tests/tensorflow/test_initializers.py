"""Initializers of TensorFlow 1 graphs without a checkpoint: imported, they draw what a training step starts from."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.records import state as training_state
from lstm_lower.tensorflow.finish import MissingValuesWarning

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1

Array = np.ndarray[Any, Any]


def drawn(variables: Callable[[], dict[str, Any]], *, resource: bool) -> dict[str, Array]:
    """What the group of all initializers gives variables."""
    with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=resource):
        made = variables()
        init = v1.global_variables_initializer()
    model = ll.from_tensorflow(graph, outputs=[init.name])
    assert not model.graph.input
    results = ll.Session(ll.lower(model)).run({})
    return {name: np.asarray(results[f"{variable.op.name}/new:0"]) for name, variable in made.items()}


# Name, initializer, mean, deviation, bound of the magnitude around the mean.
DRAWN = [
    ("random_normal", v1.initializers.random_normal(1.0, 0.5), 1.0, 0.5, math.inf),
    ("random_uniform", v1.initializers.random_uniform(-1, 2), 0.5, 3 / math.sqrt(12), 1.5),
    ("truncated_normal", v1.initializers.truncated_normal(0.0, 0.5), 0.0, 0.5 * 0.87962566, 1.0),
    ("glorot_uniform", v1.initializers.glorot_uniform(), 0.0, 1 / 8, math.sqrt(3 / 64)),
    ("glorot_normal", v1.initializers.glorot_normal(), 0.0, 1 / 8, 2 / 8 / 0.87962566),
    ("he_normal", v1.initializers.he_normal(), 0.0, math.sqrt(2 / 64), 2 * math.sqrt(2 / 64) / 0.87962566),
    ("lecun_uniform", v1.initializers.lecun_uniform(), 0.0, 1 / 8, math.sqrt(3 / 64)),
    ("variance_scaling", v1.initializers.variance_scaling(2.0, "fan_out", "uniform"), 0.0, math.sqrt(2 / 64), 0.3062),
]


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_values_have_the_distribution(resource: bool) -> None:
    """Means within five of their deviations; two variables alike get other values."""

    def variables() -> dict[str, Any]:
        made = {name: v1.get_variable(name, [64, 64], initializer=what) for name, what, *_ in DRAWN}
        again = v1.get_variable("again", [64, 64], initializer=v1.initializers.random_normal(1.0, 0.5))
        return {**made, "again": again}

    found = drawn(variables, resource=resource)
    assert not np.array_equal(found["again"], found["random_normal"])
    for name, _, mean, deviation, bound in DRAWN:
        value = found[name]
        assert abs(value.mean() - mean) < 5 * deviation / 64, name
        assert abs(value.std() / deviation - 1) < 0.05, name
        assert np.abs(value - mean).max() <= bound * 1.0001, name
        assert len(np.unique(value)) > 4000, name


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_values_that_are_not_drawn_one_by_one(resource: bool) -> None:
    def variables() -> dict[str, Any]:
        made = {
            "constant": v1.get_variable("constant", [2, 3], initializer=v1.initializers.constant(3.0)),
            "identity": v1.get_variable("identity", [4, 4], initializer=v1.initializers.identity(2.0)),
            "shuffled": v1.get_variable("shuffled", initializer=tf.random.shuffle(tf.range(30))),
        }
        for name, shape in (("square", [6, 6]), ("tall", [3, 3, 4]), ("wide", [4, 16])):
            made[name] = v1.get_variable(name, shape, initializer=v1.initializers.orthogonal(gain=2.0))
        return made

    found = drawn(variables, resource=resource)
    np.testing.assert_array_equal(found["constant"], np.full((2, 3), 3, np.float32))
    np.testing.assert_array_equal(found["identity"], 2 * np.eye(4, dtype=np.float32))
    assert found["shuffled"].tolist() != sorted(found["shuffled"])
    assert sorted(found["shuffled"]) == list(range(30))
    for name in ("square", "tall", "wide"):
        rows = found[name].reshape(-1, found[name].shape[-1]) / 2
        rows = rows if len(rows) <= rows.shape[1] else rows.T
        np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-6, err_msg=name)
    # Rotations and reflections alike, in no preferred direction.
    assert (np.sign(found["wide"]) > 0).mean() == pytest.approx(0.5, abs=0.25)


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_variables_that_start_as_others(resource: bool) -> None:
    def variables() -> dict[str, Any]:
        weight = v1.get_variable("weight", [3, 4], initializer=v1.initializers.random_normal())
        average = tf.train.ExponentialMovingAverage(0.9)
        average.apply([weight])
        made = {"weight": weight, "average": average.average(weight)}
        if not resource:
            made["twice"] = v1.Variable(weight.initialized_value() * 2, name="twice", use_resource=False)
        return made

    found = drawn(variables, resource=resource)
    assert found["weight"].any()
    np.testing.assert_array_equal(found["average"], found["weight"])
    np.testing.assert_array_equal(found.get("twice", 2 * found["weight"]), 2 * found["weight"])


def test_a_step_finds_its_variables_initialized() -> None:
    with tf.Graph().as_default() as graph:
        weight = v1.get_variable("weight", [], initializer=v1.initializers.random_normal(), use_resource=False)
        value = v1.cond(v1.is_variable_initialized(weight), lambda: weight + 1, lambda: tf.constant(7.0))
        tf.identity(value, "value")
    model = ll.from_tensorflow(graph, outputs=["value:0"], weights="inputs")
    assert ll.Session(ll.lower(model)).run({"weight:0": np.float32(2)})["value:0"] == 3


def test_a_graph_file_trains_from_its_own_initializers(tmp_path: Path) -> None:
    path = tmp_path / "step.meta"
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 3], "x")
        w = v1.get_variable("w", [3, 3], initializer=v1.initializers.orthogonal())
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1), name="loss")
        v1.train.AdamOptimizer(0.1).minimize(loss, name="train")
        v1.global_variables_initializer()
        v1.train.export_meta_graph(str(path))
    with pytest.warns(MissingValuesWarning, match=r"outputs=\['init'\] imports what draws them"):
        step = ll.from_tensorflow(path, outputs=["loss:0", "train"])
    first = ll.Session(ll.lower(ll.from_tensorflow(path, outputs=["init"]))).run({})
    properties = {entry.key: entry.value for entry in step.metadata_props}
    pairs = training_state.parse(properties).pairs
    trainer = ll.Trainer(ll.lower(step), initial_values={pair.input: first[f"{pair.variable}/new:0"] for pair in pairs})
    losses = [float(trainer.step({"x:0": np.eye(3, dtype=np.float32)}).loss) for _ in range(30)]
    assert losses[-1] < losses[0] / 4
