"""Random numbers of imported graphs: their distribution, one draw for forward and backward, new ones every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest

import lstm_lower as ll
from lstm_lower.passes.opset.installed import has_kernel

tf = pytest.importorskip("tensorflow")

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]

SIZE = 200


def session_of(function: Callable[[Any], dict[str, Any]], shape: list[int | None]) -> Callable[[Feeds], Feeds]:
    """The lowered function, to be run again and again in one session."""
    traced = tf.function(function, input_signature=[tf.TensorSpec(shape, tf.float32, name="x")])
    model = ll.lower(ll.from_tensorflow(traced))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [value.name for value in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.parametrize("shape", [[SIZE, SIZE], [None, SIZE]])
@pytest.mark.parametrize("seed", [None, 7])
def test_dropout_masks(shape: list[int | None], seed: int | None) -> None:
    def step(x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            first, second = tf.nn.dropout(x, 0.3, seed=seed), tf.nn.dropout(x, 0.3, seed=seed and seed + 1)
            loss = tf.reduce_sum(first + 2 * second)
        return {"first": first, "second": second, "gradient": tape.gradient(loss, x)}

    run = session_of(step, shape)
    ones = {"x": np.ones((SIZE, SIZE), np.float32)}
    before, after = run(ones), run(ones)
    for results in (before, after):
        for name in ("first", "second"):
            kept = results[name] != 0
            np.testing.assert_allclose(results[name][kept], 1 / 0.7, rtol=1e-6)
            assert abs(kept.mean() - 0.7) < 0.02
        # The backward mask is the forward one.
        np.testing.assert_allclose(results["gradient"], results["first"] + 2 * results["second"], rtol=1e-6)
    # Two layers, and two runs, agree where independent draws do: in 0.7 * 0.7 + 0.3 * 0.3 of all places.
    for one, other in ((before["first"], before["second"]), (before["first"], after["first"])):
        assert abs((one == other).mean() - 0.58) < 0.02


@pytest.mark.parametrize(
    ("draw", "mean", "deviation", "low", "high"),
    [
        (tf.random.uniform, 0.5, 12**-0.5, 0, 1),
        (lambda shape: tf.random.uniform(shape, -2.0, 4.0), 1, 3**0.5, -2, 4),
        (tf.random.normal, 0, 1, -7, 7),
        (lambda shape: tf.random.normal(shape, 3.0, 0.5), 3, 0.5, -1, 7),
        # The variance of a normal distribution cut off at two standard deviations is 0.7737.
        (tf.random.truncated_normal, 0, 0.7737**0.5, -2, 2),
        (lambda shape: tf.cast(tf.random.uniform(shape, -1, 3, tf.int32), tf.float32), 0.5, 1.25**0.5, -1, 2),
    ],
    ids=["uniform", "scaled-uniform", "normal", "scaled-normal", "truncated", "integers"],
)
@pytest.mark.parametrize("known", [False, True])
def test_distributions(draw: Any, mean: float, deviation: float, low: float, high: float, known: bool) -> None:
    shape = [SIZE if known else None, SIZE]
    run = session_of(lambda x: {"a": x + draw(tf.shape(x)), "b": x + draw(tf.shape(x))}, shape)
    zeros = {"x": np.zeros((SIZE, SIZE), np.float32)}
    before, after = run(zeros), run(zeros)
    for numbers in (before["a"], before["b"], after["a"]):
        assert abs(numbers.mean() - mean) < 0.03 * deviation
        assert abs(numbers.std() - deviation) < 0.03 * deviation
        assert low <= numbers.min() <= numbers.max() <= high
    for other in (before["b"], after["a"]):
        assert abs(np.corrcoef(before["a"].ravel(), other.ravel())[0, 1]) < 0.03


def test_dropout_of_older_graphs_stays() -> None:
    # tf2onnx takes this pattern for a Dropout, which does nothing in inference.
    def step(x: Any) -> dict[str, Any]:
        kept = tf.random.uniform(tf.shape(x)) >= 0.5
        return {"y": tf.cast(kept, tf.float32) * (x * 2.0)}

    results = session_of(step, [SIZE, SIZE])({"x": np.ones((SIZE, SIZE), np.float32)})
    assert abs((results["y"] == 0).mean() - 0.5) < 0.02
    assert abs((results["y"] == 2).mean() - 0.5) < 0.02


@pytest.mark.parametrize(
    "draw", [tf.random.uniform, tf.random.normal, tf.random.truncated_normal], ids=["uniform", "normal", "truncated"]
)
def test_generators_beyond_what_the_runtime_runs_are_refused(draw: Any) -> None:
    """If onnxruntime loads them one day, so does this; until then an error of ours, not of the session's."""
    function = tf.function(lambda x: {"y": x + draw(tf.shape(x))}, input_signature=[tf.TensorSpec([2, 2], name="x")])
    model = ll.from_tensorflow(function)
    onnxruntime.InferenceSession(ll.lower(model, 21).SerializeToString())
    refusal = r"Random.* requires opset 21 or older \(onnxruntime runs no newer form of it\), got 22"
    if has_kernel("RandomUniformLike", 22):
        onnxruntime.InferenceSession(ll.lower(model, 22).SerializeToString())
        return
    with pytest.raises(ll.UnsupportedOpError, match=refusal):
        ll.lower(model, 22)


def test_a_model_that_nothing_would_run_is_not_made() -> None:
    function = tf.function(lambda x: {"y": x + tf.random.uniform([2])}, input_signature=[tf.TensorSpec([2], name="x")])
    if has_kernel("RandomUniformLike", 22):
        ll.from_tensorflow(function, opset=22)
        return
    with pytest.raises(ll.UnsupportedOpError, match=r"RandomUniform '.*': the node requires opset 21 or older"):
        ll.from_tensorflow(function, opset=22)


@pytest.mark.parametrize("gradient", [False, True])
def test_each_iteration_draws_anew(gradient: bool) -> None:
    """Nothing that draws is moved out of its loop, and the backward loop reads what was drawn."""

    def step(x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            masks = tf.TensorArray(tf.float32, 5)
            total = tf.zeros_like(x)
            for i in tf.range(5):
                mask = tf.cast(tf.random.uniform([SIZE * SIZE]) < 0.5, tf.float32)
                masks = masks.write(i, mask)
                total = total + mask * x
        results = {"masks": masks.stack(), "total": total}
        return results | ({"slope": tape.gradient(total, x)} if gradient else {})

    results = session_of(step, [SIZE * SIZE])({"x": np.full(SIZE * SIZE, 2, np.float32)})
    masks = results["masks"]
    for number, mask in enumerate(masks):
        assert abs(mask.mean() - 0.5) < 0.02
        for other in masks[number + 1 :]:
            assert abs((mask == other).mean() - 0.5) < 0.02
    np.testing.assert_allclose(results["total"], 2 * masks.sum(0))
    if gradient:
        np.testing.assert_allclose(results["slope"], masks.sum(0))
