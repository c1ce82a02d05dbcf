"""`lstm-lower check --against tensorflow`: a graph here and in TensorFlow, step by step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lstm_lower.tensorflow.original import TensorFlowRefusedError
from tests.support.command_line import SALIENCY, fail, run

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1

FILES = Path(__file__).parents[1] / "data" / "tensorflow_files"
META = FILES / "step" / "model.ckpt-0.meta"


def compared(*words: object) -> dict[str, Any]:
    result = run("check", *words, "--against", "tensorflow", "--json")
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if found.get("passed") else 1), result.output
    return found


def rows(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in found["rows"]}


@pytest.mark.slow
def test_a_training_step() -> None:
    found = compared(META)
    assert found["passed"]
    assert found["steps"] == 3
    told = rows(found)
    assert told["sparse_softmax_cross_entropy_loss/value:0"]["kind"] == "output"
    assert {"kernel", "kernel/Adam", "global_step", "dense/part_1"} <= {
        name for name, row in told.items() if row["kind"] == "variable"
    }
    # A sequence in one op, which TensorFlow has in float32 alone.
    assert found["float64"] == "Value for attr 'T' of double is not in the list of allowed values: half, float"
    assert all(0 <= row["own"] < 1e-5 and row["float64"] is None for row in told.values())


@pytest.mark.slow
def test_a_warning_is_printed_once(tmp_path: Path) -> None:
    for name in (META.name, META.with_suffix(".index").name):
        shutil.copy(META.parent / name, tmp_path)
    said = run("check", tmp_path / META.name, "--against", "tensorflow").stderr
    assert said.count("its checkpoint is not read") == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            (
                "Graph execution error: Detected at node 'c' defined at (most recent call last): Node: 'c' "
                "ConcatOp : sizes differ: shape[0] = [3,1] [[{{node c}}]]"
            ),
            "ConcatOp : sizes differ: shape[0] = [3,1]",
        ),
        (
            "No OpKernel was registered to support Op 'CTCLoss' used by {{node x}} with these attrs: [a] Registered",
            "No OpKernel was registered to support Op 'CTCLoss'",
        ),
    ],
)
def test_what_tensorflow_refuses_in_a_few_words(text: str, reason: str) -> None:
    error = TensorFlowRefusedError("model.meta", text)
    assert error.reason == reason
    assert str(error).startswith("model.meta: a graph and feeds that TensorFlow runs are required")


@pytest.mark.slow
def test_a_function_with_its_variables() -> None:
    found = compared(FILES / "saved_2", "--steps", 2)
    assert found["passed"]
    assert found["float64"] is None
    assert set(rows(found)) == {"y", "loss", "w", "count"}
    assert all(row["float64"] < 1e-6 for row in found["rows"])


def saved(graph: Any, folder: Path, train: bool = True) -> Path:
    with v1.Session(graph=graph) as session:
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(folder / "model"))
    return folder / "model.meta"


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step of an RNN with dropout inside and behind its loop, and a branch around it."""
    v1.set_random_seed(1)
    with tf.Graph().as_default() as graph:
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [None, None, 3], name="x")
        scale = v1.placeholder_with_default(tf.constant(2.0), [], name="scale")
        w = v1.get_variable("w", initializer=tf.constant(np.linspace(-1, 1, 28).reshape(7, 4), tf.float32))

        def step(h: Any, element: Any) -> Any:
            return tf.nn.dropout(tf.tanh(tf.concat([element, h], 1) @ w), 0.4)

        states = tf.scan(step, x, tf.zeros([tf.shape(x)[1], 4]))
        kept = v1.cond(scale > 1, lambda: tf.nn.dropout(states, 0.3) * scale, lambda: states)
        loss = tf.reduce_mean(tf.square(kept - 0.5), name="loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        chosen = v1.multinomial(tf.zeros([3, 50]), 2)
        tf.reduce_mean(states + tf.cast(tf.reduce_sum(chosen), tf.float32), name="chance")
        return saved(graph, tmp_path_factory.mktemp("dropped"))


@pytest.mark.slow
def test_dropout_drops_the_same_on_both_sides(dropped: Path) -> None:
    found = compared(dropped, "--outputs", "loss:0,train")
    assert found["passed"]
    assert len(found["draws"]) == 2
    assert found["float64"] is None
    assert {row["verdict"] for row in found["rows"]} == {"ok"}
    text = run("check", dropped, "--outputs", "loss:0,train", "--against", "tensorflow").stdout
    assert "the same fixed numbers instead of random ones" in text


def test_other_draws_are_random(dropped: Path) -> None:
    found = compared(dropped, "--outputs", "chance:0")
    assert not found["passed"]
    assert rows(found)["chance:0"]["verdict"] == "random"


@pytest.mark.slow
def test_feeds_of_some_inputs(dropped: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", **{"x:0": np.full((2, 5, 3), np.nan, np.float32)})
    found = compared(dropped, "--outputs", "loss:0,train", "-i", tmp_path / "feeds.npz")
    assert rows(found)["loss:0"]["verdict"] == "not finite in the original"
    np.savez(tmp_path / "feeds.npz", **{"y:0": np.zeros(3)})
    result = run("check", dropped, "--against", "tensorflow", "-i", tmp_path / "feeds.npz")
    assert "y:0" in result.stderr


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    assert "requires a TensorFlow graph" in fail("check", SALIENCY, "--against", "tensorflow")
    assert "--lowered requires --against float64" in fail(
        "check", META, "--against", "tensorflow", "--lowered", SALIENCY
    )
    np.savez(tmp_path / "feeds.npz", **{"fifo_queue_DequeueMany:1": np.full((2, 5), 99, np.int32)})
    text = fail("check", META, "--against", "tensorflow", "-i", tmp_path / "feeds.npz")
    assert "a graph and feeds that TensorFlow runs are required" in text


@pytest.mark.slow
def test_a_graph_against_float64() -> None:
    result = run("check", META)
    assert result.exit_code == 0, result.output
    assert "kernel/new:0" in result.stdout
