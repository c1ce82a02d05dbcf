"""The params layout: sizes, canonical order, errors; the params ops' oracles."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.layouts import GATES, ParamsLayout, resolve_skip_input
from lstm_lower.runtime.proof.oracles.cudnn import (
    canonical_to_params,
    params_size,
    params_to_canonical,
    params_to_canonical_v2,
)
from tests.support.cudnn_cases import CASES, UNITS, Case

NETWORKS = sorted({Case(c.mode, c.layers, c.bidirectional, c.skip, proj=c.proj) for c in CASES}, key=str)


def layout_of(case: Case) -> ParamsLayout:
    return ParamsLayout(
        case.mode, case.layers, case.directions, case.input_size, UNITS, num_proj=case.proj, skip_input=case.skip
    )


@pytest.mark.parametrize("case", NETWORKS, ids=str)
def test_blocks_cover_the_buffer(case: Case) -> None:
    layout = layout_of(case)
    assert layout.size == case.params_size
    for blocks in (list(layout.blocks), layout.canonical_weights() + layout.canonical_biases()):
        assert blocks[0].offset == 0
        assert [block.end for block in blocks[:-1]] == [block.offset for block in blocks[1:]]
        assert blocks[-1].end == layout.size


@pytest.mark.parametrize("case", NETWORKS, ids=str)
def test_canonical_round_trip(case: Case) -> None:
    common = {
        "num_layers": case.layers,
        "num_units": UNITS,
        "input_size": case.input_size,
        **{name: case.attributes[name] for name in ("rnn_mode", "input_mode", "direction", "num_proj")},
    }
    params = np.random.default_rng(0).standard_normal(case.params_size)
    assert params_size(**common)["params_size"].tolist() == [case.params_size]
    gates, cells = len(GATES[case.mode]), case.layers * case.directions
    counts = {"num_params_weights": cells * (2 * gates + bool(case.proj)), "num_params_biases": cells * 2 * gates}
    parts = params_to_canonical_v2(params=params, **counts, **common)
    assert parts["weights"][0].shape == (UNITS, 0 if case.skip else case.input_size)
    np.testing.assert_array_equal(canonical_to_params(**parts, **common)["params"], params)
    if not case.proj:
        del common["num_proj"]
        again = params_to_canonical(params=params, num_params=cells * 2 * gates, **common)
        np.testing.assert_array_equal(
            np.concatenate([w.ravel() for w in again["weights"]]), params[: -cells * 2 * gates * UNITS]
        )


def test_order_of_a_small_buffer() -> None:
    """One bidirectional gru of one unit and input: every element has its place."""
    layout = ParamsLayout("gru", 1, 2, 1, 1)
    names = [block.name for block in layout.canonical_weights() + layout.canonical_biases()]
    cell = ["W_r", "W_u", "W_n", "R_r", "R_u", "R_n"]
    assert names == cell * 2 + [f"b{name}" for name in cell] * 2
    assert [block.offset for block in layout.table[1].weights] == [6, 9]
    assert [block.offset for block in layout.table[1].biases] == [18, 21]


def test_projection_as_wide_as_the_units_is_none() -> None:
    layout = ParamsLayout("lstm", 1, 1, 3, 4, num_proj=4)
    assert not layout.projects
    assert layout.size == ParamsLayout("lstm", 1, 1, 3, 4).size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rnn_mode": "lstmp"}, "rnn_mode requires one of lstm, gru, rnn_relu, rnn_tanh, got 'lstmp'"),
        ({"directions": 3}, "direction requires 1 or 2 directions, got 3"),
        ({"num_layers": 0}, "num_layers requires at least 1, got 0"),
        ({"num_units": 0}, "num_units requires at least 1, got 0"),
        ({"input_size": -1}, "input_size requires at least 0, got -1"),
        ({"num_layers": 2_000_000_000}, "num_layers requires at most 1024, got 2000000000"),
        ({"num_units": 2**31 - 1}, "num_units requires at most 1048576, got 2147483647"),
        ({"num_proj": -2}, "num_proj requires at least 0, got -2"),
        ({"num_proj": 5}, "num_proj requires at most num_units = 4, got 5"),
        ({"rnn_mode": "gru", "num_proj": 2}, "num_proj requires 0 under rnn_mode gru"),
        ({"skip_input": True}, "input requires input size = num_units = 4 under skip_input"),
    ],
)
def test_contradictions_are_refused(change: dict, message: str) -> None:
    sizes = {"rnn_mode": "lstm", "num_layers": 1, "directions": 1, "input_size": 3, "num_units": 4}
    with pytest.raises(InvalidInputError, match=message):
        ParamsLayout(**{**sizes, **change})


def test_wrong_length_is_explained() -> None:
    layout = ParamsLayout("lstm", 2, 2, 3, 4, num_proj=2)
    with pytest.raises(InvalidInputError) as caught:
        layout.check_size(7)
    assert str(caught.value) == (
        "params layout: params requires length 512 (lstm, 4 gates of 4 units; "
        "layer 0: 2 x (16x3 W + 16x2 R + 2x4 P + 2x16 biases); "
        "layer 1: 2 x (16x4 W + 16x2 R + 2x4 P + 2x16 biases)), got length 7"
    )
    layout.check_size(2 * (16 * 3 + 16 * 2 + 2 * 4 + 2 * 16) + 2 * (16 * 4 + 16 * 2 + 2 * 4 + 2 * 16))


def test_input_mode() -> None:
    assert resolve_skip_input("skip_input", 1, 2)
    assert resolve_skip_input("auto_select", 2, 2)
    assert not resolve_skip_input("auto_select", 1, 2)
    assert not resolve_skip_input("linear_input", 2, 2)
    with pytest.raises(InvalidInputError, match="input_mode requires one of"):
        resolve_skip_input("linear", 2, 2)


def test_many_layers_are_explained_in_few_words() -> None:
    text = ParamsLayout("gru", 1000, 1, 3, 4).explain()
    assert text.endswith("layers 1 to 999, each: 1 x (12x4 W + 12x4 R + 2x12 biases)")
    assert len(text) < 200


def test_a_size_that_int32_does_not_hold() -> None:
    sizes = {"num_layers": np.int32(1024), "num_units": np.int32(2**14), "input_size": np.int32(3)}
    with pytest.raises(InvalidInputError, match="attribute S requires int64 for a size of 2198083928064, got int32"):
        ll.raw_ops.CudnnRNNParamsSize(**sizes)
    assert ll.raw_ops.CudnnRNNParamsSize(**sizes, S="int64") == [2198083928064]
