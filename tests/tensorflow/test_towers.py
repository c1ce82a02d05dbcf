"""Graphs that hold one step for many workers or towers are cut to one, which computes what TensorFlow does.

What only looks like that stays whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.checkpoints.bundle import find_checkpoint, open_checkpoint
from lstm_lower.tensorflow.opening import open_source
from lstm_lower.tensorflow.towers import TowersWarning, cut_of
from tests.support.tensorflow_programs import SEQUENCES, TARGETS, run

tf = pytest.importorskip("tensorflow").compat.v1


def values(path: Path) -> dict[str, Any]:
    checkpoint = open_checkpoint(find_checkpoint(path) or path)
    # A worker's own copies are taken over anew before each of its steps.
    return {name: checkpoint.read(name) for name in checkpoint.tensors if not name.startswith("worker")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["workers", "towers"])
def test_three_steps_of_one_and_three_in_tensorflow_are_six(kind: str, tmp_path: Path) -> None:
    run(kind, "begin", tmp_path)
    with pytest.warns(TowersWarning) as told:
        model = ll.from_tensorflow(tmp_path / "begin.meta")
    one = kind[:-1]
    text = f"cut to {one}_0, one of 3 {kind}; gone: {one}_1, {one}_2"
    copies = "; the step reads the variables that it updates, not its copies of them: global/v, global/w"
    assert str(told[0].message).endswith(text + (copies if kind == "workers" else ""))
    trainer = ll.Trainer(model)
    assert sorted(x.name for x in trainer.data_inputs) == [f"{one}_0/x:0", f"{one}_0/y:0"]
    for _ in range(3):
        trainer.step({f"{one}_0/x:0": SEQUENCES, f"{one}_0/y:0": TARGETS})
    trainer.to_tensorflow(tmp_path / "trained", like=tmp_path / "begin")
    (tmp_path / "on").mkdir()
    run(kind, "go_on", tmp_path / "trained", tmp_path / "on")
    for got, wanted in (("trained", "three"), ("on/after", "six")):
        after, expected = values(tmp_path / got), values(tmp_path / wanted)
        assert after.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(after[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def weight(name: str) -> Any:
    return tf.get_variable(name, [3, 2], use_resource=False)


def loss_on(name: str, *weights: Any) -> Any:
    x, y = tf.placeholder(tf.float32, [None, 3], f"{name}_x"), tf.placeholder(tf.float32, [None, 2], f"{name}_y")
    return tf.reduce_mean(tf.square(sum(x @ w for w in weights) - y))


def target_network() -> None:
    """The step reads a copy of what it updates, and that as well."""
    own, target = weight("own"), weight("target")
    target.assign(own)
    tf.train.GradientDescentOptimizer(0.1).minimize(loss_on("net", own, target), var_list=[own])


def two_losses() -> None:
    """One call of tf.gradients, whose terms are alike."""
    own = weight("own")
    tf.train.GradientDescentOptimizer(0.1).minimize(loss_on("one", own) + loss_on("two", own))


def two_critics() -> None:
    """Two steps that are alike, of weights of their own."""
    for name in ("one", "two"):
        tf.train.GradientDescentOptimizer(0.1).minimize(loss_on(name, own := weight(name)), var_list=[own], name=name)


def other_objective() -> None:
    """Two steps of the same weights, which differ."""
    own = weight("own")
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    optimizer.minimize(loss_on("one", own), name="one")
    optimizer.minimize(2.0 * loss_on("two", own), name="two")


def shared_data() -> None:
    """A mean of two gradients on the same data."""
    own = weight("own")
    loss = loss_on("one", own)
    gradients = [tf.gradients(loss, own)[0] for _ in range(2)]
    tf.train.GradientDescentOptimizer(0.1).apply_gradients([(tf.reduce_mean(tf.stack(gradients), 0), own)])


@pytest.mark.parametrize("build", [target_network, two_losses, two_critics, other_objective, shared_data])
def test_what_only_looks_alike_stays_whole(build: Any) -> None:
    with tf.Graph().as_default() as graph:
        build()
    assert cut_of(open_source(graph.as_graph_def())) is None
