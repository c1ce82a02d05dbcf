"""The cuDNN oracles against PyTorch's autograd in float64."""

from __future__ import annotations

import numpy as np
import pytest

from lstm_lower.runtime.proof.oracles.cudnn import cudnn_rnn_backprop_v3, cudnn_rnn_v3
from tests.support.cudnn_cases import CASES, FORWARD, Case

pytest.importorskip("torch")

from tests.support.cudnn_torch import reference


def relative_error(value: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(np.abs(value - expected), initial=0) / max(np.max(np.abs(expected), initial=0), 1))


def test_there_are_enough_cases() -> None:
    assert len(set(CASES)) == len(CASES) >= 300


@pytest.mark.parametrize("case", CASES, ids=str)
def test_oracle_equals_autograd(case: Case) -> None:
    operands = case.operands(seed=len(str(case)))
    forward, backward = reference(case, operands)
    inputs = {name: operands[name] for name in FORWARD}
    masks = operands["reserve_space"] if case.masks else None
    out = cudnn_rnn_v3(**inputs, **case.attributes, masks=masks)
    grads = cudnn_rnn_backprop_v3(**operands, **case.attributes)
    for expected, got in ((forward, out), (backward, grads)):
        for name, value in expected.items():
            assert got[name].shape == value.shape, name
            assert relative_error(got[name], value) <= 1e-12, name
    assert out["reserve_space"].size == operands["reserve_space"].size
    if case.mode != "lstm":
        assert out["output_c"].shape == ()
        assert grads["input_c_backprop"].shape == ()
