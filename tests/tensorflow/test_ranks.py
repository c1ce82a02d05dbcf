"""Ranks that a graph leaves open: of inputs, of what is in between, of variables and of outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.tensorflow.finish import UnknownRankWarning

tf = pytest.importorskip("tensorflow")

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)

# A tensor of x's rows for the first, of its entries for the second.
PLACES = [np.array([[0], [1]], np.int32), np.array([[0, 1], [1, 2]], np.int32)]


def graph_of(build: Callable[[Any], Any]) -> Any:
    with tf.Graph().as_default() as graph:
        build(tf.compat.v1)
    return graph


def gathered(v1: Any) -> Any:
    """What has one rank or another."""
    return tf.gather_nd(v1.placeholder(tf.float32, [2, 3], "x"), v1.placeholder(tf.int32, [None, None], "i"), name="z")


def check(graph: Any, output: str, model: Any) -> None:
    session = ll.Session(ll.lower(model))
    for places in PLACES:
        fed = {"x:0": X, "i:0": places}
        with tf.compat.v1.Session(graph=graph) as reference:
            np.testing.assert_allclose(session.run(fed)[output], reference.run(output, fed), rtol=1e-6)


@pytest.mark.parametrize("reduce", [tf.reduce_mean, tf.reduce_sum, tf.reduce_max, tf.reduce_prod])
def test_a_reduction_over_all_axes_is_a_scalar(reduce: Callable[..., Any]) -> None:
    graph = graph_of(lambda v1: reduce(gathered(v1), name="y"))
    model = ll.from_tensorflow(graph, outputs=["y:0"])
    assert not model.graph.output[0].type.tensor_type.shape.dim
    check(graph, "y:0", model)


def test_a_choice_by_what_has_one_rank_or_another() -> None:
    def build(v1: Any) -> None:
        tf.reduce_sum(tf.raw_ops.Select(condition=gathered(v1) > 2.0, x=tf.ones([2, 3]), y=tf.zeros([2, 3])), name="y")

    graph = graph_of(build)
    check(graph, "y:0", ll.from_tensorflow(graph, outputs=["y:0"]))


def test_the_rank_of_an_output_can_be_said() -> None:
    graph = graph_of(gathered)
    with pytest.raises(ll.UnsupportedOpError, match=r"give it by shapes=, such as shapes=\{'z:0': \[None\]\}"):
        ll.from_tensorflow(graph, outputs=["z:0"])
    session = ll.Session(ll.lower(ll.from_tensorflow(graph, outputs=["z:0"], shapes={"z:0": [None]})))
    np.testing.assert_array_equal(session.run({"x:0": X, "i:0": PLACES[1]})["z:0"], [2, 6])
    with pytest.raises(ll.InvalidInputError, match="onnxruntime failed on these feeds"):
        session.run({"x:0": X, "i:0": PLACES[0]})


def test_an_input_takes_the_only_rank_that_fits() -> None:
    def build(v1: Any) -> None:
        rate = v1.placeholder(tf.float32, None, "rate")
        product = tf.raw_ops.MatMul(a=v1.placeholder(tf.float32, None, "x"), b=tf.ones([3, 2]))
        tf.multiply(product, rate, name="y")

    with pytest.warns(UnknownRankWarning) as told:
        model = ll.from_tensorflow(graph_of(build))
    assert any("the rank of x:0 is not known: taken as 2, the only one that fits" in str(w.message) for w in told)
    assert [len(value.type.tensor_type.shape.dim) for value in model.graph.input] == [0, 2]


def test_of_several_ranks_none_is_taken() -> None:
    def build(v1: Any) -> None:
        tf.reshape(v1.placeholder(tf.float32, None, "x"), [2, 3], name="y")

    with pytest.raises(
        ll.InvalidInputError, match=r"shapes requires the sizes of inputs whose rank .* got none of x:0"
    ):
        ll.from_tensorflow(graph_of(build))


@pytest.mark.parametrize("way", ["checkpoint", "shapes", "neither"])
def test_a_variable_of_unknown_rank(tmp_path: Path, way: str) -> None:
    def build(v1: Any) -> None:
        variable = tf.raw_ops.VariableV2(shape=[2, 3], dtype=tf.float32, shared_name="v", name="v")
        v1.assign_add(variable, tf.ones([2, 3]), use_locking=True, name="step")

    message = graph_of(build).as_graph_def()
    next(node for node in message.node if node.name == "v").attr["shape"].shape.unknown_rank = True
    if way == "neither":
        wanted = r"variable 'v' requires a known rank, .* name a checkpoint .*, or say shapes=\{'v:0': \[...\]\}"
        with pytest.raises(ll.InvalidInputError, match=wanted):
            ll.from_tensorflow(message, outputs=["step:0"], weights="inputs")
        return
    options: dict[str, Any] = {"shapes": {"v:0": [2, 3]}}
    if way == "checkpoint":
        tf.raw_ops.SaveV2(prefix=f"{tmp_path}/v", tensor_names=["v"], shape_and_slices=[""], tensors=[X])
        options = {"checkpoint": tmp_path / "v"}
    model = ll.from_tensorflow(message, outputs=["step:0"], weights="inputs", **options)
    fed = {} if way == "checkpoint" else {"v:0": X}
    np.testing.assert_array_equal(ll.Session(ll.lower(model)).run(fed)["step:0"], X + 1)
