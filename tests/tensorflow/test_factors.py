"""Gradients of factors of matrices, which TensorFlow writes as graphs and `ll.gradient` derives from the loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "full", "triangular"),
    [((6, 3), False, False), ((2, 3, 5), False, False), ((4, 4), True, True), ((5, 3), False, True)],
)
def test_gradients_of_orthogonal_factors(shape: tuple[int, ...], full: bool, triangular: bool) -> None:
    """TensorFlow's own gradient imported, ours through the reflections, and finite differences of the kernels."""
    rng = np.random.default_rng(5)
    smaller = min(shape[-2:])
    q_grad = rng.standard_normal((*shape[:-1], smaller))
    r_grad = rng.standard_normal((*shape[:-2], smaller, shape[-1]))
    x, direction = rng.standard_normal((2, *shape))
    if triangular:
        # Without anything below the diagonal there is no reflection; with anything, signs change.
        x = np.triu(x) + np.eye(*shape[-2:])
        direction = np.triu(direction)

    def loss(x: Any) -> Any:
        q, r = tf.linalg.qr(x, full)
        return tf.reduce_sum(q * q_grad) + tf.reduce_sum(tf.sin(r) * r_grad)

    def step(x: Any) -> Any:
        value = loss(x)
        return {"loss": value, "gradient": tf.gradients(value, x)[0]}

    specs = [tf.TensorSpec(shape, tf.float64, name="x")]
    imported = ll.Session(ll.lower(ll.from_tensorflow(tf.function(step, autograph=False), specs=specs))).run({"x": x})
    forward = ll.from_tensorflow(tf.function(lambda x: {"loss": loss(x)}, autograph=False), specs=specs)
    ours = ll.Session(ll.lower(ll.gradient(forward, of="loss", wrt=["x"]))).run({"x": x})["grad/x"]
    plus, minus = (loss(tf.constant(x + h * direction)).numpy() for h in (1e-6, -1e-6))
    assert np.vdot(ours, direction) == pytest.approx((plus - minus) / 2e-6, rel=1e-6, abs=1e-7)
    np.testing.assert_allclose(imported["gradient"], ours, rtol=1e-10, atol=1e-10)
