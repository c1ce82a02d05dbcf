"""Optimizers of TensorFlow 1 on embeddings, whose gradients are of rows, with reference and resource variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from tests.support.tensorflow_steps import run_steps

tf = pytest.importorskip("tensorflow")

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda v1: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda v1: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda v1: v1.train.AdamOptimizer(0.1),
    "rmsprop": lambda v1: v1.train.RMSPropOptimizer(0.1, momentum=0.5),
    "centered-rmsprop": lambda v1: v1.train.RMSPropOptimizer(0.1, centered=True),
    "adagrad": lambda v1: v1.train.AdagradOptimizer(0.1),
    "adadelta": lambda v1: v1.train.AdadeltaOptimizer(0.5),
    "ftrl": lambda v1: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "ftrl-shrinkage": lambda v1: v1.train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.01),
    "proximal-sgd": lambda v1: v1.train.ProximalGradientDescentOptimizer(0.1, l1_regularization_strength=0.01),
    "proximal-adagrad": lambda v1: v1.train.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.01),
    "adagrad-da": lambda v1: v1.train.AdagradDAOptimizer(0.1, v1.train.get_or_create_global_step()),
}


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_follow_tensorflow(optimizer: str, resource: bool) -> None:
    v1 = tf.compat.v1
    rng = np.random.default_rng(5)
    feeds = [{"ids:0": rng.integers(0, 5, size).astype(np.int32)} for size in (3, 7, 1, 12, 4)]
    with tf.Graph().as_default() as graph:
        ids = v1.placeholder(tf.int32, [None], "ids")
        initial = rng.standard_normal((6, 3)).astype(np.float32)
        table = v1.get_variable("table", initializer=initial, use_resource=resource)
        scale = v1.get_variable("scale", initializer=np.ones(3, np.float32), use_resource=resource)
        rows = tf.nn.embedding_lookup(table, ids)
        loss = tf.reduce_sum(tf.square(tf.tanh(rows * scale) - 0.5), name="loss")
        OPTIMIZERS[optimizer](v1).minimize(loss, name="train")
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            variables = v1.global_variables()
            start = {variable.op.name: np.asarray(session.run(variable)) for variable in variables}
            for feed in feeds:
                session.run("train", feed)
            end = {variable.op.name: session.run(variable) for variable in variables}
        definition = graph.as_graph_def()
    lowered = ll.lower(ll.from_tensorflow(definition, ["ids:0"], ["loss:0", "train"], weights="inputs"))
    # TensorFlow sums the gradients of equal rows before: nothing is repeated row by row.
    assert "Loop" not in {node.op_type for node in lowered.graph.node}
    ours = run_steps(lowered, feeds, start)
    for name, value in end.items():
        if not np.array_equal(value, start[name]):
            np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
