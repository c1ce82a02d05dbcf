"""Graphs of TensorFlow 0.12, whose TensorArrays have texts as handles, beside TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.command_line import run

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1

STRING, RESOURCE = tf.string.as_datatype_enum, tf.resource.as_datatype_enum

# A version of graphs in which the ops were not deprecated yet.
PRODUCER = 19


@pytest.fixture(autouse=True)
def frames() -> Iterator[None]:
    v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


def recurrent() -> None:
    """A recurrent network over arrays that are unstacked, written, gathered, and trained."""
    x = v1.placeholder(tf.float32, [5, None, 3], "x")
    w = v1.get_variable("w", [5, 2], use_resource=False)
    steps = tf.TensorArray(tf.float32, 5).unstack(x)

    def step(i: Any, h: Any, written: Any) -> Any:
        h = tf.tanh(tf.concat([steps.read(i), h], 1) @ w)
        return i + 1, h, written.write(i, h)

    first = tf.zeros([tf.shape(x)[1], 2])
    _, _, written = tf.while_loop(lambda i, *_: i < 5, step, [0, first, tf.TensorArray(tf.float32, 5)])
    loss = tf.reduce_mean(tf.square(written.stack() - 0.5), name="loss")
    joined = tf.TensorArray(tf.float32, 2, infer_shape=False).split(x[0], [1, 1]).concat()
    v1.train.GradientDescentOptimizer(0.5).minimize(loss + 0.0 * tf.reduce_sum(joined), name="train")


def as_in_0_12(graph_def: Any) -> Any:
    old = v1.GraphDef(versions={"producer": PRODUCER})
    made_by = {node.name: node for node in graph_def.node}
    flows = {node.name for node in graph_def.node if node.op == "TensorArrayV3"}
    for node in graph_def.node:
        if node.name in flows:
            flow = old.node.add(name=f"{node.name}/flow", op="Const")
            flow.attr["dtype"].type = tf.float32.as_datatype_enum
            flow.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.float32(0)))
    for node in graph_def.node:
        made = old.node.add()
        made.CopyFrom(node)
        if node.op.startswith("TensorArray"):
            made.op = node.op.replace("V3", "V2")
            made.attr.pop("identical_element_shapes", None)
        elif node.op == "Enter" and made_by[node.input[0].partition(":")[0]].op.startswith("TensorArray"):
            made.attr["T"].type = STRING if node.attr["T"].type == RESOURCE else node.attr["T"].type
        for number, name in enumerate(node.input):
            if name.endswith(":1") and name.removesuffix(":1") in flows:
                made.input[number] = name.removesuffix(":1") + "/flow"
    return old


def test_a_recurrent_network_trains(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        recurrent()
    graph_def = as_in_0_12(graph.as_graph_def())
    assert {"TensorArrayV2", "TensorArrayGradV2", "TensorArrayConcatV2"} <= {node.op for node in graph_def.node}
    (tmp_path / "graph.pb").write_bytes(graph_def.SerializeToString())
    result = run("check", tmp_path / "graph.pb", "--against", "tensorflow", "--json")
    found = json.loads(result.stdout)
    assert found["passed"], result.output
    assert found["float64"] is None
    assert {row["name"] for row in found["rows"]} == {"add:0", "w"}
