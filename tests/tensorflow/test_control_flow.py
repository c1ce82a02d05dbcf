"""Loops and branches within each other, as random programs had them: outputs and gradients next to TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")

X = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)


def check(function: Callable[[Any], Any], x: Any = X) -> None:
    """The result of a function and its gradient."""

    @tf.function(input_signature=[tf.TensorSpec(x.shape, x.dtype, name="x")], autograph=False)
    def step(given: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(given)
            result = function(given)
            loss = tf.reduce_sum(tf.sin(result))
        return {"result": result, "gradient": tape.gradient(loss, given)}

    expected = step(x)
    found = ll.Session(ll.lower(ll.from_tensorflow(step))).run({"x": x})
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def sides(x: Any) -> list[Callable[[], Any]]:
    """Three that keep values of different shapes for the backward pass, as optional ones."""
    return [lambda: tf.sin(x) * x, lambda: x * tf.exp(tf.reduce_mean(x)), lambda: x * tf.sin(tf.reduce_sum(x, 0))]


def test_case_of_several_in_a_loop() -> None:
    def body(step: Any, x: Any) -> tuple[Any, Any]:
        return step + 1, tf.switch_case(step % 4, sides(x))

    check(lambda x: tf.while_loop(lambda step, _: step < 4, body, (0, x))[1])


@pytest.mark.parametrize("sign", [1, -1])
def test_case_within_a_branch(sign: int) -> None:
    def choose(x: Any) -> Any:
        case = tf.switch_case(tf.cast(x[0, 0] * 4, "int32"), sides(x))
        return case * tf.cond(
            x[1, 1] > 0, lambda: tf.switch_case(tf.cast(x[1, 0] * 3, "int32"), sides(x)), lambda: tf.square(x)
        )

    check(lambda x: tf.cond(sign * x[0, 1] > 0, lambda: choose(x), lambda: tf.cosh(x) * tf.reduce_sum(x)))
