"""A hundred steps of PyTorch's optimizers at changing sizes; `python -m tests.torch_steps` runs all."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from tests.support.torch_steps import losses


@pytest.mark.parametrize(("kind", "optimizer"), [("LSTM", "NAdam"), ("GRU", "RAdam"), ("RNN", "momentum")])
def test_losses_stay_pytorchs(kind: str, optimizer: str) -> None:
    ours, theirs, _ = losses(kind, optimizer, 100)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    assert np.mean(ours[-20:]) < np.mean(ours[:20]) - 0.05
