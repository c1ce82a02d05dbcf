"""Scripts of onnxruntime-training with the import changed, against what it computed itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lstm_lower.ort_training import api, artifacts, onnxblock
from tests.support.ort_training_runs import RUNS, run

FOLDER = Path(__file__).parents[1] / "data" / "ort_training"


@pytest.mark.parametrize("name", RUNS)
def test_runs_are_those_of_onnxruntime_training(name: str) -> None:
    with np.load(FOLDER / f"{name}.npz") as recorded:
        expected = dict(recorded)
    found = run(name, artifacts, onnxblock, api)
    assert set(found) == set(expected)
    for key, value in found.items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-5, atol=2e-6, err_msg=key)
