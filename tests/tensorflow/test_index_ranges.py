"""Indices that TensorFlow's kernels for processors refuse fail here, too; those that they leave out are left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError

tf = pytest.importorskip("tensorflow")

ROWS = 4
TABLE = np.arange(12, dtype=np.float32).reshape(ROWS, 3)
TWO = np.ones((2, 3), np.float32)
SCORES = np.zeros((3, 1, 4), np.float32)
PLACES = np.array([[0, 0], [0, 1]])
LENGTH = np.array([3], np.int32)


def _uses(bad: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every op that takes indices, with one that is out of range."""
    pair = np.array([bad, 0], np.int32)
    column, apart = pair[:, None], np.array([[1, bad], [0, 0]], np.int32)
    yield "Gather", {"params": TABLE, "indices": pair}
    yield "GatherV2", {"params": TABLE, "indices": pair, "axis": 0}
    yield "GatherV2", {"params": np.stack([TABLE, TABLE]), "indices": column, "axis": 1, "batch_dims": 1}
    yield "GatherNd", {"params": TABLE, "indices": column}
    yield "GatherNd", {"params": TABLE.T.copy(), "indices": apart}
    yield "ScatterNd", {"indices": column, "updates": TWO, "shape": np.array([ROWS, 3], np.int32)}
    yield "ScatterNd", {"indices": apart, "updates": TWO[:, 0], "shape": np.array([3, ROWS], np.int32)}
    for kind in ("Update", "Add", "Sub", "Max", "Min"):
        yield f"TensorScatter{kind}", {"tensor": TABLE, "indices": column, "updates": TWO}
    yield "InvertPermutation", {"x": np.array([bad, 0, 1, 2], np.int32)}
    sparse = {
        "output_shape": np.array([ROWS], np.int32),
        "sparse_values": np.float32(1),
        "default_value": np.float32(0),
    }
    yield "SparseToDense", {"sparse_indices": np.sort(pair), **sparse}
    for place in (np.array([[bad, 0], [0, 1]]), np.array([[0, bad], [0, 1]])):
        matrix = {"a_values": np.ones(2, np.float32), "a_shape": np.array([ROWS, ROWS]), "b": TABLE}
        yield "SparseTensorDenseMatMul", {"a_indices": place, **matrix}
    for kind in ("Sum", "Prod", "Max", "Min"):
        yield f"UnsortedSegment{kind}", {"data": TWO, "segment_ids": pair, "num_segments": ROWS}
    for kind in ("Sum", "Mean", "Prod", "Max", "Min"):
        yield f"Segment{kind}", {"data": TWO, "segment_ids": np.array([bad, 5], np.int32)}
    first = np.array([0, 1], np.int32)
    for kind in ("Sum", "Mean", "SqrtN"):
        yield f"SparseSegment{kind}", {"data": TABLE, "indices": pair, "segment_ids": first}
        yield f"SparseSegment{kind}", {"data": TABLE, "indices": first, "segment_ids": np.array([bad, 5], np.int32)}
        counted = {"data": TABLE, "indices": first, "segment_ids": np.sort(pair), "num_segments": ROWS}
        yield f"SparseSegment{kind}WithNumSegments", counted
        rows = {"output_dim0": ROWS}
        yield f"SparseSegment{kind}Grad", {"grad": TWO, "indices": pair, "segment_ids": first, **rows}
        yield f"SparseSegment{kind}Grad", {"grad": TABLE, "indices": first, "segment_ids": np.sort(pair), **rows}
    yield "DynamicPartition", {"data": TWO, "partitions": pair, "num_partitions": ROWS}
    yield "DynamicStitch", {"indices": [pair], "data": [TWO]}
    yield "Bincount", {"arr": pair, "size": ROWS, "weights": np.zeros(0, np.float32)}
    yield "DenseBincount", {"input": pair[None], "size": ROWS, "weights": np.zeros(0, np.float32)}
    yield "OneHot", {"indices": pair, "depth": ROWS, "on_value": 1.0, "off_value": 0.0}
    yield "InTopKV2", {"predictions": TABLE.T.copy(), "targets": np.array([bad, 0, 1], np.int32), "k": 2}
    labels = np.array([bad, 0, 1], np.int32)
    yield "SparseSoftmaxCrossEntropyWithLogits", {"features": TABLE.T.copy(), "labels": labels}
    ctc = {"inputs": SCORES, "labels_indices": PLACES, "sequence_length": LENGTH}
    yield "CTCLoss", {**ctc, "labels_values": np.array([bad, 0], np.int32)}
    yield "CTCLoss", {**ctc, "labels_values": np.array([0, bad], np.int32)}
    yield "CTCLoss", {**ctc, "labels_values": np.array([0, 1], np.int32), "sequence_length": np.array([bad], np.int32)}


@pytest.mark.slow
@pytest.mark.parametrize("bad", [-1, ROWS, -ROWS - 1])
def test_refused_where_tensorflow_refuses(bad: int) -> None:
    for name, operands in _uses(bad):
        given = {key: tf.constant(x) if isinstance(x, np.ndarray) else x for key, x in operands.items()}
        try:
            wanted = getattr(tf.raw_ops, name)(**given)
        except tf.errors.InvalidArgumentError:
            with pytest.raises(InvalidInputError, match="onnxruntime failed"):
                getattr(ll.raw_ops, name)(**operands)
            continue
        found = getattr(ll.raw_ops, name)(**operands)
        pairs = [(found, wanted)] if isinstance(found, np.ndarray) else list(zip(found, wanted, strict=True))
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-5, atol=1e-6, err_msg=name)


def test_labels_of_a_single_row_are_not_repeated() -> None:
    scores, labels = tf.TensorSpec([None, 3], name="scores"), tf.TensorSpec([None], tf.int32, name="labels")
    loss = tf.function(
        lambda scores, labels: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores), [scores, labels]
    )
    session = ll.Session(ll.lower(ll.from_tensorflow(loss)))
    assert len(session.inputs) == 2
    feeds = dict(zip(session.inputs, (np.zeros((8, 3), np.float32), np.zeros(8, np.int32)), strict=True))
    session.run(feeds)
    with pytest.raises(InvalidInputError, match="Split"):
        session.run({**feeds, session.inputs[1]: np.zeros(1, np.int32)})
