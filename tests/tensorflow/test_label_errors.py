"""The label error rate of a CTC model: scores decoded and compared with the labels, as a graph has it."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
def test_label_error_rate(known: bool) -> None:
    """With labels whose number of axes only the decoder's tells, too."""
    v1, steps, batch, classes = tf.compat.v1, 60, 8, 5
    rng = np.random.default_rng(4)
    with tf.Graph().as_default() as graph:
        scores = v1.placeholder(tf.float32, [None, None, classes], "scores")
        lengths = v1.placeholder(tf.int32, [None], "lengths")
        labels = v1.sparse_placeholder(tf.int32, [None, None] if known else None, "labels")
        (decoded,), _ = tf.nn.ctc_greedy_decoder(scores, lengths)
        distances = tf.edit_distance(tf.cast(decoded, tf.int32), labels, name="distances")
        tf.reduce_mean(distances, name="rate")
        names = [labels.indices.name, labels.values.name, labels.dense_shape.name]
        kept = rng.random((batch, 50)) < np.linspace(0.1, 1, batch)[:, None]
        places = np.argwhere(kept)
        feeds = {
            "scores:0": rng.standard_normal((steps, batch, classes)).astype(np.float32),
            "lengths:0": rng.integers(1, steps + 1, batch).astype(np.int32),
            names[0]: places,
            names[1]: rng.integers(0, classes - 1, len(places)).astype(np.int32),
            names[2]: np.array([batch, 50], np.int64),
        }
        outputs = [distances.name, "rate:0"]
        with v1.Session(graph=graph) as session:
            wanted = session.run(outputs, feeds)
    model = ll.from_tensorflow(graph, list(feeds), outputs)
    found = ll.Session(ll.lower(model)).run(feeds)
    for name, value in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-6)
