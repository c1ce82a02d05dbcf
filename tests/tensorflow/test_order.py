"""What waits for a branch or a loop sees the variables as these leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.records import state as training_state

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1


@pytest.fixture(params=["frames", "functions"], autouse=True)
def control_flow(request: pytest.FixtureRequest) -> Iterator[None]:
    (v1.disable_control_flow_v2 if request.param == "frames" else v1.enable_control_flow_v2)()
    try:
        yield
    finally:
        v1.enable_control_flow_v2()


def read_after(waited: Any, variable: Any) -> Any:
    with tf.control_dependencies([waited]):
        return variable.read_value()


def after_a_branch(x: Any, k: Any) -> Any:
    waited = tf.cond(x > 0, lambda: tf.group(k.assign(x)), lambda: tf.group(k.assign_add(1.0)))
    return read_after(waited, k) * 2.0


def after_a_constant_that_waits(x: Any, k: Any) -> Any:
    """TensorFlow leaves out a control edge that an operand has already, be it a constant."""
    step = tf.cond(x > 0, lambda: 2.0 * x, lambda: x - 1.0)
    with tf.control_dependencies([k.assign_add(step)]):
        moved = v1.get_variable("moved", initializer=0.0).assign_add(tf.constant(0.5))
    return read_after(moved, k)


def after_a_group_outside(x: Any, k: Any) -> Any:
    """The second branch of the same predicate runs after what waits for the first."""
    first = tf.cond(x > 0, lambda: k.assign_add(3.0), lambda: k.assign_sub(1.0))
    middle = read_after(tf.group(first), k)
    doubled = read_after(k.assign(2.0 * middle), k)
    return tf.cond(x > 0, lambda: 3.0 * doubled, lambda: doubled - x) + middle


def in_a_branch_of_a_branch(x: Any, k: Any) -> Any:
    def taken() -> Any:
        with tf.control_dependencies([k.assign_add(1.0)]):
            return tf.cond(x > 1, lambda: 2.0 * k.read_value(), lambda: k.assign_sub(x))

    return read_after(tf.cond(x > 0, taken, lambda: k.assign_sub(0.5)), k)


def after_a_loop(x: Any, k: Any) -> Any:
    def body(number: Any) -> Any:
        with tf.control_dependencies([k.assign_add(x)]):
            return number + 1

    return read_after(tf.while_loop(lambda number: number < 3, body, [0])[0], k)


def after_a_loop_that_reads(x: Any, k: Any) -> Any:
    product = tf.while_loop(lambda number, _: number < 3, lambda number, s: (number + 1, s * (k + x)), [0, 1.0])[1]
    return product + read_after(product, k.assign(0.5 * product))


def after_a_loop_in_a_branch(x: Any, k: Any) -> Any:
    def body(number: Any, s: Any) -> Any:
        with tf.control_dependencies([k.assign_add(s)]):
            return number + 1, 0.5 * s

    taken = tf.cond(x > 0, lambda: tf.while_loop(lambda i, _: i < 3, body, [0, x])[1], lambda: k.assign_sub(1.0))
    return read_after(taken, k)


CASES: list[Callable[[Any, Any], Any]] = [
    after_a_branch,
    after_a_constant_that_waits,
    after_a_group_outside,
    in_a_branch_of_a_branch,
    after_a_loop,
    after_a_loop_that_reads,
    after_a_loop_in_a_branch,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_order_of_reads_and_assignments(case: Callable[[Any, Any], Any]) -> None:
    feeds = [np.float32(number) for number in (0.5, -0.75, 1.5)]
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [], "x")
        tf.identity(case(x, v1.get_variable("k", initializer=0.25)), "y")
        session.run(v1.global_variables_initializer())
        variables = {variable.op.name: variable for variable in v1.global_variables()}
        state = {f"{name}:0": value for name, value in session.run(variables).items()}
        expected = [(session.run("y:0", {"x:0": value}), session.run(variables)) for value in feeds]
    model = ll.from_tensorflow(graph.as_graph_def(), ["x:0"], ["y:0"], weights="inputs")
    pairs = training_state.parse({entry.key: entry.value for entry in model.metadata_props}).pairs
    compiled = ll.Session(ll.lower(model))
    for value, (wanted, wanted_state) in zip(feeds, expected, strict=True):
        results = compiled.run({"x:0": value, **{pair.input: state[pair.input] for pair in pairs}})
        np.testing.assert_allclose(results["y:0"], wanted, rtol=1e-6)
        state |= {pair.input: results[pair.output] for pair in pairs if pair.output}
        for pair in pairs:
            np.testing.assert_allclose(state[pair.input], wanted_state[pair.variable], rtol=1e-6, err_msg=pair.input)
