"""Strings decide how a graph is run, and have no place in a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")


@pytest.mark.parametrize("phase", ["train", "test"])
@pytest.mark.parametrize("compare", [tf.raw_ops.Equal, tf.raw_ops.NotEqual], ids=["equal", "not_equal"])
def test_a_phase_chooses_a_branch(compare: Callable[..., Any], phase: str) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], "x")
        given = v1.placeholder_with_default(phase, [], "phase")
        chosen = compare(x=tf.identity(given), y=tf.constant("train"))
        tf.identity(v1.cond(chosen, lambda: 2 * x, lambda: -x), name="y")
    session = ll.Session(ll.lower(ll.from_tensorflow(graph, outputs=["y:0"])))
    fed = {"x:0": np.ones(3, np.float32)}
    with v1.Session(graph=graph) as reference:
        np.testing.assert_array_equal(session.run(fed)["y:0"], reference.run("y:0", fed))


def test_strings_are_compared_one_by_one() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3], "x")
        tf.multiply(x, tf.cast(tf.equal(tf.constant(["a", "b", "a"]), "a"), tf.float32), name="y")
    session = ll.Session(ll.lower(ll.from_tensorflow(graph, outputs=["y:0"])))
    assert session.run({"x:0": np.ones(3, np.float32)})["y:0"].tolist() == [1, 0, 1]


def test_what_is_printed_goes_on() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], "x")
        y = v1.Print(x * x, [tf.shape(x), tf.constant("x")], "of x: ", first_n=1)
        tf.identity(tf.gradients(y * 3.0, x)[0] + y, name="y")
    session = ll.Session(ll.lower(ll.from_tensorflow(graph, outputs=["y:0"])))
    assert session.run({"x:0": np.arange(3, dtype=np.float32)})["y:0"].tolist() == [0, 7, 16]


def test_a_string_that_is_no_constant_is_refused() -> None:
    with tf.Graph().as_default() as graph:
        text = tf.compat.v1.placeholder(tf.string, [], "text")
        tf.cast(tf.equal(text, "a"), tf.float32, name="y")
    with pytest.raises(ll.LstmLowerError, match="text"):
        ll.from_tensorflow(graph, outputs=["y:0"])
