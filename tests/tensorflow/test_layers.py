"""Small training steps of TensorFlow with the layers around recurrent ones: loss and gradients, in onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")

from tests.support.examples import TIMES  # noqa: E402 (needs TensorFlow)
from tests.support.layer_steps import STEPS, traced  # noqa: E402 (needs TensorFlow)
from tests.tensorflow.test_graphs import lowered, run  # noqa: E402 (needs TensorFlow)

# Each in one form, in turn; in both where more examples are asked for.
FORMS = ((False,), (True,)) if TIMES == 1 else ((False, True),)
CASES = [(name, form) for number, name in enumerate(STEPS) for form in FORMS[number % len(FORMS)]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "open_batch"), CASES)
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
