"""Losses that are estimated with some of many classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")

CLASSES, UNITS, ROWS, SAMPLES, RUNS = 40, 5, 6, 12, 1000
LOSSES: dict[str, Callable[..., Any]] = {"softmax": tf.nn.sampled_softmax_loss, "nce": tf.nn.nce_loss}


def traced(loss: str, true: int, sampler: Callable[[Any], Any] | None) -> Any:
    """A step that gives loss and gradients; without a sampler with the loss's own."""
    rng, count = np.random.default_rng(8), SAMPLES if sampler is None else CLASSES
    weights = tf.Variable(rng.standard_normal((CLASSES, UNITS)).astype(np.float32), name="weights")
    biases = tf.Variable(rng.standard_normal(CLASSES).astype(np.float32), name="biases")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, UNITS], tf.float32, name="x"),
            tf.TensorSpec([None, true], tf.int64, name="labels"),
        ]
    )
    def step(x: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            sampled = None if sampler is None else sampler(labels)
            value = tf.reduce_mean(
                LOSSES[loss](weights, biases, labels, x, count, CLASSES, num_true=true, sampled_values=sampled)
            )
        dense = [tf.convert_to_tensor(part) for part in tape.gradient(value, [x, weights, biases])]
        return {"loss": value, "dx": dense[0], "dw": dense[1], "db": dense[2]}

    return step


def run(step: Any) -> tuple[Callable[[], dict[str, Any]], Callable[[], dict[str, Any]]]:
    """Runs of the lowered model, and TensorFlow's."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal((ROWS, UNITS)).astype(np.float32)
    labels = rng.integers(0, CLASSES, (ROWS, step.input_signature[1].shape[1]))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    model = ll.lower(ll.from_tensorflow(step))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [value.name for value in session.get_outputs()]
    feeds = {"x": x, "labels": labels}
    theirs = (tf.constant(x), tf.constant(labels))
    return (
        lambda: dict(zip(names, session.run(names, feeds), strict=True)),
        lambda: {name: value.numpy() for name, value in step(*theirs).items()},
    )


@pytest.mark.slow
@pytest.mark.parametrize("true", [1, 3])
@pytest.mark.parametrize("loss", LOSSES)
def test_with_given_samples(loss: str, true: int) -> None:
    """All classes are samples, so that every label is hit by one."""

    def sampler(labels: Any) -> Any:
        return tf.random.all_candidate_sampler(labels, true, CLASSES, unique=True)

    ours, theirs = run(traced(loss, true, sampler))
    found = ours()
    for name, value in theirs().items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_with_samples_of_its_own(loss: str) -> None:
    """Averages of many runs: the samples differ."""
    ours, theirs = run(traced(loss, 1, None))
    (found, spread), (expected, spread_there) = (moments([once() for _ in range(RUNS)]) for once in (ours, theirs))
    for name, value in expected.items():
        # Six standard errors of the difference of two averages.
        allowed = 6 * np.sqrt((spread[name] + spread_there[name]) / RUNS) + 1e-6
        assert (np.abs(found[name] - value) <= allowed).all(), name


def moments(results: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Averages and variances by name."""
    assert len({float(result["loss"]) for result in results}) > 0.8 * len(results)
    stacked = {name: np.stack([result[name] for result in results]).astype(np.float64) for name in results[0]}
    return {name: x.mean(0) for name, x in stacked.items()}, {name: x.var(0) for name, x in stacked.items()}


def test_samplers_that_learn_are_refused() -> None:
    def sampler(labels: Any) -> Any:
        return tf.random.learned_unigram_candidate_sampler(labels, 1, CLASSES, unique=True, range_max=CLASSES)

    with pytest.raises(ll.UnsupportedOpError, match=r"LearnedUnigramCandidateSampler '.*': no conversion is known"):
        ll.from_tensorflow(traced("softmax", 1, sampler))
