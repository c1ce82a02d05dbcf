"""Graphs next to TensorFlow, on feeds that its own messages lead to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.opdef import DOMAIN
from lstm_lower.passes.rules.registry import RULES, Rule
from lstm_lower.records import certificate
from lstm_lower.tensorflow.against_tensorflow import Comparison, Import, compare_with_tensorflow
from lstm_lower.tensorflow.opening import open_source
from lstm_lower.tensorflow.original import Original, original
from lstm_lower.tensorflow.races import affected, races

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1

pytestmark = pytest.mark.filterwarnings("ignore::lstm_lower.errors.LstmLowerWarning")


def placeholder(name: str, shape: Any, dtype: Any = tf.float32) -> Any:
    return v1.placeholder(dtype, shape, name)


def variable(name: str, shape: list[int]) -> Any:
    return v1.get_variable(name, shape, use_resource=False)


def minimized(loss: Any) -> None:
    v1.train.AdamOptimizer(1e-3).minimize(tf.reduce_mean(loss), name="train")


def compared(build: Callable[[], None], outputs: list[str] | None = None) -> Comparison:
    with tf.Graph().as_default() as graph:
        build()
    graph_def = graph.as_graph_def()
    return compare_with_tensorflow(Import(lambda: open_source(graph_def), outputs=outputs))


def reshaped() -> None:
    """As many samples as a reshape has in it, of which no declaration knows."""
    x, y = placeholder("x", [None, 12]), placeholder("y", [None], tf.int32)
    logits = tf.reshape(x, [6, 12]) @ variable("w", [12, 3])
    minimized(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def asserted() -> None:
    x, lengths = placeholder("x", [None, None, 2]), placeholder("n", [None], tf.int32)
    with tf.control_dependencies([v1.assert_equal(tf.shape(x)[1], 7), v1.assert_equal(lengths, 5)]):
        mask = tf.sequence_mask(lengths, tf.shape(x)[1], tf.float32)
    minimized(tf.tensordot(x, variable("w", [2, 3]), 1) * mask[:, :, None])


def of_open_rank() -> None:
    x, y = placeholder("x", None), placeholder("y", None, tf.int32)
    logits = tf.reshape(x, [-1, 5]) @ variable("w", [5, 3])
    minimized(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def of_positive_numbers() -> None:
    x = placeholder("x", [None, 3])
    minimized(tf.math.log(x) * variable("w", [3]))


def sparse() -> None:
    """Products of matrices that are fed as indices, values and sizes, whose sizes have to fit."""
    a, b = v1.sparse_placeholder(tf.float32, name="a"), v1.sparse_placeholder(tf.float32, name="b")
    minimized(tf.sparse.sparse_dense_matmul(a, tf.sparse.sparse_dense_matmul(b, variable("w", [7, 3]))))


def labelled() -> None:
    """CTC, with labels of which nothing is declared, not even a rank."""
    x, lengths = placeholder("x", [5, None, 4]), placeholder("n", [None], tf.int32)
    labels = tf.SparseTensor(
        placeholder("i", None, tf.int64), placeholder("v", None, tf.int32), placeholder("s", None, tf.int64)
    )
    logits = tf.tensordot(x, variable("w", [4, 6]), 1)
    minimized(v1.nn.ctc_loss(labels, logits, lengths))


@pytest.mark.slow
@pytest.mark.parametrize("build", [reshaped, asserted, of_open_rank, of_positive_numbers, sparse, labelled])
def test_a_verdict_without_any_feeds(build: Callable[[], None]) -> None:
    found = compared(build)
    assert found.verdict == "passed", found
    assert {row.kind for row in found.rows} == {"output", "variable"}
    assert all(row.steps == 3 for row in found.rows)


def test_labels_of_ctc_have_the_rank_that_the_op_has() -> None:
    with tf.Graph().as_default() as graph:
        labelled()
    model = ll.from_tensorflow(graph)
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input}
    assert (ranks["i:0"], ranks["v:0"]) == (2, 1)
    assert (
        model.graph.input[[value.name for value in model.graph.input].index("i:0")]
        .type.tensor_type.shape.dim[1]
        .dim_value
        == 2
    )


def test_feeds_that_nothing_makes_right() -> None:
    def build() -> None:
        x = placeholder("x", [2, 3])
        with tf.control_dependencies([v1.assert_equal(tf.shape(x)[0], 9)]):
            minimized(x * variable("w", [3]))

    with pytest.raises(ll.InvalidInputError, match=r"assertion failed.*feeds may be given by --inputs"):
        compared(build)


def steps_on_one_variable(*, waits: bool) -> Original:
    """Two training steps, the second of which waits for the first or not, and a variable that both leave alone."""
    with tf.Graph().as_default() as graph:
        x, w, v = placeholder("x", [4, 2]), variable("w", [2]), variable("v", [2])
        one = v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum((x * w) ** 2), name="one")
        with tf.control_dependencies([one] if waits else []):
            other = v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum((x + 1) * w.read_value()), name="two")
        v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(x * v), name="three")
        del other
    source = open_source(graph.as_graph_def())
    return original(source, {"x:0": np.ones([4, 2], np.float32)}, ["one", "two", "three"])


def test_updates_that_race_are_known_by_the_graph() -> None:
    graph = steps_on_one_variable(waits=False)
    found = races(graph)
    assert {race.variable for race in found} == {"w"}
    assert affected(graph, found) == {("variable", "w")}
    assert not races(steps_on_one_variable(waits=True))


def function(factor: float = 1.0) -> Any:
    w = tf.Variable(np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2), name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], name="x")])
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softsign(x @ w)) * factor
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return {"loss": loss}

    return step


def test_an_import_says_what_it_was_compared_with() -> None:
    model = ll.from_tensorflow(function(), check=True)
    found = certificate.parse({entry.key: entry.value for entry in model.metadata_props})
    assert found is not None
    assert found.framework == f"TensorFlow {tf.__version__}"
    assert (list(found.errors["loss"]), list(found.errors["update"])) == (["loss"], ["w"])
    assert list(found.sizes) == ["x"]


def test_an_import_with_a_wrong_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    key = (DOMAIN, "Softsign")
    assert key in RULES
    monkeypatch.setitem(RULES._entries, key, Rule(lambda n, _: n.features * 42.0, repeatable=True))
    with pytest.raises(ll.UnsupportedOpError, match=r"computes what TensorFlow .* does, got another output 'loss'"):
        ll.from_tensorflow(function(2.0), check=True)


def test_what_needs_no_tensorflow_to_be_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ll.from_tensorflow(tmp_path / "nothing.pb", check=True)
