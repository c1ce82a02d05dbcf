"""The losses of graphs, whatever TensorFlow's version called the ones that gradients start from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lstm_lower.checkpoints import messages
from lstm_lower.tensorflow.files import steps
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.files.views import View

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1


@pytest.fixture
def control_flow(request: pytest.FixtureRequest) -> Iterator[None]:
    (v1.disable_control_flow_v2 if request.param == "frames" else v1.enable_control_flow_v2)()
    yield
    v1.enable_control_flow_v2()


def mean() -> Any:
    x = v1.placeholder(tf.float32, [None, 3], "x")
    w = v1.get_variable("w", [3, 2], use_resource=False)
    return tf.reduce_mean(tf.square(tf.matmul(x, w)), name="value")


def with_ones_of_its_own() -> Any:
    """Numbers that are one, in gradients too, are no place where they start."""
    x = v1.placeholder(tf.float32, [None, 2], "x")
    w = v1.get_variable("w", [2, 2], use_resource=False)
    return tf.reduce_sum((1.0 - tf.sigmoid(x @ w)) * tf.ones_like(x) / 1.0, name="value")


def in_a_loop() -> Any:
    w = v1.get_variable("w", [], use_resource=False)
    _, total, _ = tf.while_loop(
        lambda i, *_: i < 3, lambda i, t, u: (i + 1, t + w * w, u * w), [0, 0.0, 1.0], name="loop"
    )
    return total if total.op.type == "Exit" else tf.negative(total, "value")


def in_a_branch() -> Any:
    w = v1.get_variable("w", [], use_resource=False)
    flag = v1.placeholder(tf.bool, [], "flag")
    return tf.cond(flag, lambda: w * w, lambda: w, name="value")


def of_gradients() -> Any:
    """A penalty on the length of a gradient, whose own start is no scalar."""
    x = v1.placeholder(tf.float32, [4, 3], "x")
    w = v1.get_variable("w", [3, 2], use_resource=False)
    with tf.name_scope("inner"):
        (slope,) = tf.gradients(tf.tanh(x @ w), x)
    return tf.reduce_mean(tf.square(slope), name="value")


def as_written(graph_def: Any) -> Any:
    return graph_def


def up_to_1_4(graph_def: Any) -> Any:
    return _renamed(graph_def, {"grad_ys_0/Const": "Const", "grad_ys_0": "Fill"})


def folded(graph_def: Any) -> Any:
    """What an optimiser of graphs makes of it."""
    return _replaced(up_to_1_4(graph_def), "Const")


def of_ones_like(graph_def: Any) -> Any:
    return _replaced(up_to_1_4(graph_def), "OnesLike")


def _renamed(graph_def: Any, names: dict[str, str]) -> Any:
    def renamed(name: str) -> str:
        for old, new in names.items():
            if name.endswith(f"gradients/{old}"):
                return name.removesuffix(old) + new
        return name

    for node in graph_def.node:
        node.name = renamed(node.name)
        for number, tensor in enumerate(node.input):
            node.input[number] = renamed(tensor)
    return graph_def


def _replaced(graph_def: Any, op: str) -> Any:
    for node in graph_def.node:
        made = {other.name: other for other in graph_def.node}
        if (
            node.name.endswith("gradients/Fill")
            and made[node.input[0]].attr["value"].tensor.tensor_shape.dim[0].size == 0
        ):
            node.op, value = op, made[node.input[1]]
            del node.input[:]
            if op == "Const":
                node.attr["value"].CopyFrom(value.attr["value"])
            else:
                node.input.append("value")
    return graph_def


def _is_empty(sizes: Any) -> bool:
    return sizes.op == "Const" and tf.make_ndarray(sizes.attr["value"].tensor).size == 0


def losses(graph_def: Any) -> list[str]:
    graph = messages.GraphDef.FromString(graph_def.SerializeToString())
    return steps.find_losses(View(graph, OpTable(graph.library.function, {})))


@pytest.mark.parametrize("form", [as_written, up_to_1_4, folded, of_ones_like])
@pytest.mark.parametrize("control_flow", ["frames", "functions"], indirect=True)
@pytest.mark.parametrize("network", [mean, with_ones_of_its_own, in_a_loop, in_a_branch, of_gradients])
@pytest.mark.usefixtures("control_flow")
def test_what_gradients_start_from(network: Callable[[], Any], form: Callable[[Any], Any]) -> None:
    with tf.Graph().as_default() as graph:
        with v1.variable_scope("model"):
            loss = network()
        v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    while loss.op.type == "Identity":  # its gradient is what it was given
        loss = loss.op.inputs[0]
    assert losses(form(graph.as_graph_def())) == [loss.name]
    assert steps.has_gradients(View(graph.as_graph_def(), OpTable([], {})))


@pytest.mark.parametrize("text", ["gradients/", "a_grad/", "gradients/a_grad", "_loss", "gradients_1/a_grad/"])
def test_long_names_take_no_time(text: str) -> None:
    graph = messages.GraphDef()
    graph.node.add(name=text * 8000, op="Const")
    for number in range(5):
        graph.node.add(name=f"{text * 8000}{number}", op="Neg", input=[text * 8000])
    view = View(graph, OpTable([], {}))
    start = time.process_time()
    steps.find_losses(view)
    steps.has_gradients(view)
    assert time.process_time() - start < 2
