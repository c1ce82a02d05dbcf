"""The cuDNN oracles by finite differences, and what the decision table fixes."""

from __future__ import annotations

import numpy as np
import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.proof.oracles.cudnn import (
    cudnn_rnn,
    cudnn_rnn_backprop,
    cudnn_rnn_backprop_v2,
    cudnn_rnn_backprop_v3,
    cudnn_rnn_v2,
    cudnn_rnn_v3,
)
from tests.support.cudnn_cases import CASES, FORWARD, UNITS, Case

# Kinks of relu spoil differences now and then; tanh has the same layout and no kinks.
SMOOTH = [case for case in CASES if case.mode != "rnn_relu"][::2]


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_gradient_is_the_directional_derivative(case: Case) -> None:
    operands = case.operands(seed=3)
    inputs = {name: operands[name] for name in FORWARD}
    names = ["input", "input_h", "params", *(["input_c"] if case.mode == "lstm" else [])]
    rng = np.random.default_rng(7)
    direction = {name: rng.standard_normal(np.shape(operands[name])) for name in names}
    masks = operands["reserve_space"] if case.masks else None

    def loss(step: float) -> float:
        moved = {**inputs, **{name: inputs[name] + step * direction[name] for name in names}}
        out = cudnn_rnn_v3(**moved, **case.attributes, masks=masks)
        pairs = ("output", "output_h", "output_c")
        return sum(float(np.sum(out[name] * operands[f"{name}_backprop"])) for name in pairs)

    grads = cudnn_rnn_backprop_v3(**operands, **case.attributes)
    slope = sum(float(np.sum(grads[f"{name}_backprop"] * direction[name])) for name in names)
    h = 2e-4
    difference = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
    assert slope == pytest.approx(difference, rel=1e-7, abs=1e-7)


def test_there_are_enough_finite_differences() -> None:
    assert len(SMOOTH) >= 100


def test_versions_agree() -> None:
    case = Case("lstm", 2, bidirectional=True)
    operands = case.operands()
    attributes = {name: case.attributes[name] for name in ("rnn_mode", "input_mode", "direction", "dropout")}
    inputs = {name: operands[name] for name in FORWARD}
    third = cudnn_rnn_v3(**inputs, **case.attributes)
    del inputs["sequence_lengths"]
    first, second = cudnn_rnn(**inputs, **attributes), cudnn_rnn_v2(**inputs, **attributes)
    assert list(first) == ["output", "output_h", "output_c", "reserve_space"]
    assert list(second) == list(third) == [*first, "host_reserved"]
    for name in second:
        np.testing.assert_array_equal(second[name], third[name])
    expected = cudnn_rnn_backprop_v3(**operands, **case.attributes)
    del operands["sequence_lengths"]
    again = cudnn_rnn_backprop_v2(**operands, **attributes)
    del operands["host_reserved"]
    for grads in (again, cudnn_rnn_backprop(**operands, **attributes)):
        assert list(grads) == list(expected)
        for name, value in expected.items():
            np.testing.assert_array_equal(grads[name], value)


def test_length_zero_passes_the_state_through() -> None:
    case = Case("lstm", 2, bidirectional=True, ragged=True)
    operands = case.operands()
    row = int(np.flatnonzero(case.lengths == 0)[0])
    out = cudnn_rnn_v3(**{name: operands[name] for name in FORWARD}, **case.attributes)
    np.testing.assert_array_equal(out["output_h"][:, row], operands["input_h"][:, row])
    np.testing.assert_array_equal(out["output_c"][:, row], operands["input_c"][:, row])
    assert not out["output"][:, row].any()
    grads = cudnn_rnn_backprop_v3(**operands, **case.attributes)
    np.testing.assert_array_equal(grads["input_h_backprop"][:, row], operands["output_h_backprop"][:, row])
    assert not grads["input_backprop"][:, row].any()


def test_padded_steps_are_never_read() -> None:
    case = Case("gru", 2, bidirectional=True, ragged=True)
    operands = case.operands()
    expected = cudnn_rnn_backprop_v3(**operands, **case.attributes)
    for row, length in enumerate(case.lengths):
        for name in ("input", "output_backprop"):
            operands[name][length:, row] = 1e3
    for name, value in cudnn_rnn_backprop_v3(**operands, **case.attributes).items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize(("width", "skips"), [(UNITS, True), (UNITS - 1, False)])
def test_auto_select_skips_when_the_sizes_agree(width: int, skips: bool) -> None:
    case = Case("gru", skip=skips)
    operands = {name: value for name, value in case.operands().items() if name in FORWARD}
    assert operands["input"].shape[-1] == width
    attributes = {**case.attributes, "input_mode": "auto_select"}
    expected = cudnn_rnn_v3(**operands, **case.attributes)["output"]
    np.testing.assert_array_equal(cudnn_rnn_v3(**operands, **attributes)["output"], expected)


def test_drawn_masks_drop_and_scale() -> None:
    case = Case("rnn_tanh", 3, steps=20, batch=20)
    operands = {name: value for name, value in case.operands().items() if name in FORWARD}
    attributes = {**case.attributes, "dropout": 0.25, "seed": 3, "seed2": 4}
    out = cudnn_rnn_v3(**operands, **attributes)
    assert out["reserve_space"].size == 2 * 20 * 20 * UNITS
    assert set(out["reserve_space"].tolist()) == {0.0, 1 / 0.75}
    assert np.mean(out["reserve_space"] == 0) == pytest.approx(0.25, abs=0.03)
    np.testing.assert_array_equal(
        out["output"], cudnn_rnn_v3(**operands, **attributes, masks=out["reserve_space"])["output"]
    )
    idle = cudnn_rnn_v3(**operands, **attributes, is_training=False)
    assert idle["reserve_space"].size == 0
    np.testing.assert_array_equal(idle["output"], cudnn_rnn_v3(**operands, **case.attributes)["output"])


def test_foreign_reserve_space_is_refused() -> None:
    case = Case("lstm", 2, masks=True)
    operands = {**case.operands(), "reserve_space": np.zeros(7)}
    with pytest.raises(InvalidInputError, match=r"reserve_space requires the dropout masks .* got 7 elements"):
        cudnn_rnn_backprop_v3(**operands, **case.attributes)
