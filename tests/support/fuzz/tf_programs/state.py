"""Variables that the program itself changes: before others read them, in loops and in branches."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.fuzz.tf_programs.registry import idea
from tests.support.fuzz.tf_programs.scope import Scope


@idea(4)
def changed(scope: Scope) -> None:
    """An assignment, and what a reader finds behind it."""
    held = scope.pick("any", lambda value: value.state is not None)
    x = scope.of_type(held, lambda value: value.sample.size > 0)
    draw, state = scope.draw, held.state
    delta = tf.reduce_mean(x.tensor) if held.is_float else tf.reduce_max(x.tensor) % 3
    rows = held.rank > 0 and held.shape[0] > 0
    kinds = ["add", "sub", "assign", "loop", "branch", "twice"] + ["rows", "slice"] * rows
    with tf.control_dependencies(scope.chain):
        match draw.choice(kinds):
            case "add":
                done = state.assign_add(tf.zeros_like(held.tensor) + delta)
            case "sub":
                done = state.assign_sub(tf.ones_like(held.tensor))
            case "assign":
                done = state.assign(tf.zeros_like(held.tensor) + delta)
            case "loop":
                done = _loop(scope, state, delta, draw.randint(0, 3))
            case "branch":
                done = _branch(scope, state, tf.reduce_sum(x.tensor) > 0)
            case "twice":
                with tf.control_dependencies([state.assign_add(tf.ones_like(held.tensor))]):
                    done = state.assign(read(state) * 2 + tf.cast(delta, held.tensor.dtype))
            case kind:
                done = _rows(kind, state, held.shape[0], delta)
    with tf.control_dependencies([done] if done is not None and not tf.executing_eagerly() else []):
        found = read(state)
    scope.chain = [] if tf.executing_eagerly() else [found]
    scope.add(found)


def read(state: Any) -> Any:
    """What a variable holds, in memory of its own."""
    return tf.raw_ops.DeepCopy(x=state.read_value())


def _loop(scope: Scope, state: Any, delta: Any, count: int) -> Any:
    def body(step: Any, total: Any) -> Any:
        with tf.control_dependencies([state.assign_add(tf.zeros_like(read(state)) + delta)]):
            return step + 1, total + tf.reduce_sum(read(state))

    return tf.while_loop(lambda step, _: step < count, body, (0, tf.zeros((), delta.dtype)), parallel_iterations=1)[1]


def _branch(scope: Scope, state: Any, condition: Any) -> Any:
    def yes() -> Any:
        with tf.control_dependencies([state.assign_add(tf.ones_like(read(state)))]):
            return read(state)

    return tf.cond(condition, yes, lambda: read(state) * 1)


def _rows(kind: str, state: Any, size: int, delta: Any) -> Any:
    value = tf.zeros_like(read(state)[:1]) + delta
    if kind == "slice":
        return state[:1].assign(value)
    rows = tf.IndexedSlices(tf.concat([value, value * 2], 0), tf.constant([size - 1, 0]))
    return state.scatter_add(rows)
