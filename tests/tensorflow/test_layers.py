"""Small training steps of TensorFlow with the layers around recurrent ones: loss and gradients, in onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")

from tests.support.layer_steps import STEPS, traced  # noqa: E402 (needs TensorFlow)
from tests.tensorflow.test_graphs import lowered, run  # noqa: E402 (needs TensorFlow)


@pytest.mark.slow
@pytest.mark.parametrize("open_batch", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_results_equal_tensorflow(name: str, open_batch: bool) -> None:
    function, feeds = traced(name, open_batch=open_batch)
    expected = {key: value.numpy() for key, value in function(*feeds).items()}
    model = ll.from_tensorflow(function)
    inputs = [value.name for value in model.graph.input]
    results = run(lowered(model), dict(zip(inputs, feeds, strict=True)))
    assert set(results) == set(expected)
    for key, value in expected.items():
        assert np.isfinite(value).all(), key
        scale = max(np.abs(value).max(initial=0), 1e-3)
        np.testing.assert_allclose(results[key], value, rtol=0, atol=2e-5 * scale, err_msg=key)
