"""SymbolicGradient: gradients of functions that TensorFlow 1 wrote as one op, next to TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")
function = pytest.importorskip("tensorflow.python.framework.function")
v1 = tf.compat.v1

RNG = np.random.default_rng(3)
X, W = RNG.standard_normal((4, 3)).astype(np.float32), RNG.standard_normal((3, 5)).astype(np.float32)


@function.Defun(tf.float32, tf.float32)
def attend(x: Any, w: Any) -> Any:
    return tf.reduce_sum(tf.tanh(x @ w) * w[:1], [1]), tf.nn.softmax(x @ w)


@function.Defun(tf.float32, tf.float32)
def product(x: Any, y: Any) -> Any:
    return x * tf.exp(y)


@function.Defun(tf.float32, tf.float32)
def twice_itself(x: Any, dy: Any) -> Any:
    return 2 * x * dy


@function.Defun(tf.float32, grad_func=twice_itself)
def odd(x: Any) -> Any:
    return tf.sin(x)


def two_results(x: Any, w: Any) -> list[Any]:
    total, weights = attend(x, w)
    return [*tf.gradients([total, weights], [x, w]), total]


def the_same_argument_twice(x: Any, w: Any) -> list[Any]:
    return [*tf.gradients(product(x, x), [x]), w]


def a_gradient_of_its_own(x: Any, w: Any) -> list[Any]:
    return [*tf.gradients(odd(x), [x]), w]


def in_a_loop(x: Any, w: Any) -> list[Any]:
    """The function's second argument does not change from step to step."""

    def step(state: Any, element: Any) -> Any:
        total, _ = attend(element[None] + state, w)
        return tf.ensure_shape(state + total, [1])

    states = tf.scan(step, x, tf.zeros([1]))
    return tf.gradients(states, [x, w])


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [two_results, the_same_argument_twice, a_gradient_of_its_own, in_a_loop], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("open_batch", [True, False], ids=["open", "fixed"])
def test_gradients_of_functions(build: Callable[[Any, Any], list[Any]], open_batch: bool) -> None:
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [None if open_batch else 4, 3], name="x")
        w = v1.placeholder(tf.float32, [3, 5], name="w")
        results = [tf.identity(result, f"y{number}") for number, result in enumerate(build(x, w))]
        expected = session.run(results, {x: X, w: W})
        graph_def = graph.as_graph_def()
    names = [f"y{number}:0" for number in range(len(results))]
    assert "SymbolicGradient" in {node.op for node in graph_def.node}
    model = ll.lower(ll.from_tensorflow(graph_def, outputs=names))
    found = ll.Session(model).run({"x:0": X, "w:0": W})
    for name, array in zip(names, expected, strict=True):
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-5 * np.abs(array).max())
