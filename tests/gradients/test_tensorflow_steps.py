"""The gradients that TensorFlow built into a training step, against ours of the step's own loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lstm_lower as ll
from tests.support.differences import run

STEP = Path(__file__).parents[2] / "examples" / "graphs" / "char_lstm_train.onnx"
WEIGHTS = ("emb", "w", "b", "dense_w", "dense_b")


@pytest.mark.slow
def test_both_are_equal() -> None:
    """The step holds a BlockLSTM and its BlockLSTMGrad; ours differentiates the first."""
    step = ll.lower(STEP)
    with np.load(STEP.with_suffix(".npz")) as data:
        feeds = {value.name: data[f"in:{value.name}"] for value in step.graph.input}
    made = run(ll.gradient(step, "loss:0", [f"{name}:0" for name in WEIGHTS]), feeds)
    for name in WEIGHTS:
        np.testing.assert_allclose(made[f"grad/{name}:0"], made[f"grad_{name}:0"], rtol=1e-5, atol=1e-7, err_msg=name)
