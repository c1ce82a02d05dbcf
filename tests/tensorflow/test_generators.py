"""Random numbers that seeds or generators determine: TensorFlow's own, draw by draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest

import lstm_lower as ll
from lstm_lower.records import state as training_state

tf = pytest.importorskip("tensorflow")

SHAPE = [7, 5]
RAW = tf.raw_ops


def session_of(model: Any) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def assert_same(ours: Any, theirs: Any) -> None:
    assert ours.dtype == theirs.dtype
    tolerance = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}.get(ours.dtype.name)
    if tolerance is None:
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


SEEDED: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda seed: RAW.StatelessRandomUniform(shape=SHAPE, seed=seed),
    "uniform-64": lambda seed: RAW.StatelessRandomUniform(shape=SHAPE, seed=seed, dtype=tf.float64),
    "uniform-scalar": lambda seed: RAW.StatelessRandomUniform(shape=tf.zeros([0], tf.int32), seed=seed),
    "uniform-none": lambda seed: RAW.StatelessRandomUniform(shape=[0, 3], seed=seed),
    "normal": lambda seed: RAW.StatelessRandomNormal(shape=SHAPE, seed=seed),
    "normal-16": lambda seed: RAW.StatelessRandomNormal(shape=SHAPE, seed=seed, dtype=tf.float16),
    "truncated": lambda seed: RAW.StatelessTruncatedNormal(shape=[100, 101], seed=seed),
    "truncated-16": lambda seed: RAW.StatelessTruncatedNormal(shape=SHAPE, seed=seed, dtype=tf.float16),
    "truncated-64": lambda seed: RAW.StatelessTruncatedNormal(shape=[101, 51], seed=seed, dtype=tf.float64),
    "truncated-none": lambda seed: RAW.StatelessTruncatedNormal(shape=[0], seed=seed),
    "truncated-2": lambda seed: tf.random.stateless_truncated_normal(SHAPE, seed, 3.0, 2.0),
    "integers": lambda seed: RAW.StatelessRandomUniformInt(shape=SHAPE, seed=seed, minval=-3, maxval=100),
    "integers-64": lambda seed: RAW.StatelessRandomUniformInt(
        shape=SHAPE, seed=seed, minval=tf.constant(-(2**40), tf.int64), maxval=tf.constant(2**50, tf.int64)
    ),
    "words": lambda seed: RAW.StatelessRandomUniformFullInt(shape=SHAPE, seed=seed, dtype=tf.int32),
    "words-64": lambda seed: RAW.StatelessRandomUniformFullInt(shape=SHAPE, seed=seed, dtype=tf.uint64),
    "classes": lambda seed: RAW.StatelessMultinomial(
        logits=tf.constant([[0.0, 1.0, 2.0], [np.nan, -np.inf, 0.5], [3.0, 3.0, 3.0]]), num_samples=9, seed=seed
    ),
    "classes-64": lambda seed: RAW.StatelessMultinomial(
        logits=tf.constant([[0.0, -1.0], [1.0, 2.0]], tf.float64), num_samples=5, seed=seed, output_dtype=tf.int32
    ),
    "categorical": lambda seed: tf.random.stateless_categorical(tf.constant([[0.1, 0.7, 0.3]]), 11, seed),
    "key": lambda seed: RAW.StatelessRandomGetKeyCounterAlg(seed=seed).key,
    "counter": lambda seed: RAW.StatelessRandomGetKeyCounterAlg(seed=seed).counter,
}


@pytest.mark.parametrize("draw", SEEDED)
def test_seeded_numbers(draw: str) -> None:
    @tf.function(input_signature=[tf.TensorSpec([2], tf.int64, name="seed")])
    def step(seed: Any) -> Any:
        return SEEDED[draw](seed)

    session = session_of(ll.lower(ll.from_tensorflow(step)))
    for seed in ([0, 0], [3, -7], [2**40, 5]):
        given = np.array(seed, np.int64)
        assert_same(session.run(None, {"seed": given})[0], step(tf.constant(given)).numpy())


def _raw(op: str, **operands: Any) -> Callable[[Any], Any]:
    return lambda g: getattr(RAW, op)(resource=g.state.handle, algorithm=tf.constant(1, tf.int64), **operands)


SIZES = tf.constant(SHAPE, tf.int64)
DRAWN: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda g: g.uniform(SHAPE),
    "uniform-integers": lambda g: g.uniform(SHAPE, -4, 9, tf.int32),
    "words": lambda g: g.uniform_full_int(SHAPE, tf.uint32),
    "normal": lambda g: g.normal(SHAPE, 2.0, 3.0),
    "truncated": lambda g: g.truncated_normal(SHAPE),
    "truncated-64": lambda g: g.truncated_normal(SHAPE, dtype=tf.float64),
    "seeds": lambda g: g.make_seeds(3),
    "skip": lambda g: g.skip(tf.constant(2**55 + 3, tf.int64)),
    "raw-uniform": _raw("StatefulUniform", shape=SIZES),
    "raw-integers": _raw("StatefulUniformInt", shape=SIZES, minval=tf.constant(-5, tf.int64),
                         maxval=tf.constant(50, tf.int64)),
    "raw-words": _raw("StatefulUniformFullInt", shape=SIZES, dtype=tf.uint64),
    "raw-normal": _raw("StatefulStandardNormalV2", shape=SIZES),
    "raw-truncated": _raw("StatefulTruncatedNormal", shape=SIZES),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWN)
def test_generators_draw_on(draw: str) -> None:
    """Two draws a step, three steps: numbers and state; from the start, where a half is full, and where both are."""
    generator = tf.random.Generator.from_state([0, 5, -123456789], alg="philox")

    @tf.function(input_signature=[])
    def step() -> Any:
        first = DRAWN[draw](generator)
        if draw == "raw-uniform":
            RAW.RngSkip(
                resource=generator.state.handle, algorithm=tf.constant(1, tf.int64), delta=tf.constant(3, tf.int64)
            )
        return {"first": first, "second": DRAWN[draw](generator)}

    model = ll.lower(ll.from_tensorflow(step, weights="inputs"))
    (pair,) = training_state.parse({entry.key: entry.value for entry in model.metadata_props}).pairs
    session = session_of(model)
    for counter in (0, -1, 2**63 - 256):
        generator.state.assign([counter, 5, -123456789])
        state = np.array(generator.state.numpy())
        for _ in range(3):
            theirs = step()
            results = session.run(None, {pair.input: state})
            ours = dict(zip([x.name for x in session.get_outputs()], results, strict=True))
            for name in ("first", "second"):
                assert_same(ours[name], theirs[name].numpy())
            state = ours[pair.output or ""]
            np.testing.assert_array_equal(state, generator.state.numpy())


def test_other_algorithms_are_refused() -> None:
    generator = tf.random.Generator.from_state([1, 2], alg="threefry")

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def step(x: Any) -> Any:
        return x + generator.uniform([])

    with pytest.raises(ll.UnsupportedOpError, match=r"RngReadAndSkip '.*': requires 1 \(Philox\) as its algorithm"):
        ll.from_tensorflow(step)


def test_a_generator_in_a_loop() -> None:
    generator = tf.random.Generator.from_state([3, 5, 7], alg="philox")

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="count")])
    def step(count: Any) -> Any:
        total = tf.zeros([4])
        for _ in tf.range(count):
            total = total * 0.5 + generator.normal([4])
        return total

    session = session_of(ll.lower(ll.from_tensorflow(step)))
    for count in (0, 1, 5):
        generator.reset([3, 5, 7])
        assert_same(
            session.run(["output_0"], {"count": np.array(count, np.int32)})[0], step(tf.constant(count)).numpy()
        )
