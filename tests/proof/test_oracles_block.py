"""The block family's oracles against TensorFlow's CPU kernels, and what they do where TensorFlow leaves it open."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lstm_lower.runtime.proof.oracles.numerics import round_attribute
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.op_inputs import OPS, SHAPES, valid_inputs
from tests.support.tensorflow_cases import CASES, Case, Results, load_recording, recording, relative_error
from tests.support.unread_inputs import UNREAD, Unread

# Of the output's largest magnitude. TensorFlow rounds after every operation and, in half, also sums in half.
TOLERANCE = {"float32": 1e-5, "float16": 2e-2}

FORWARD_SEQUENCES = ("BlockLSTM", "BlockLSTMV2")
BACKWARD_SEQUENCES = ("BlockLSTMGrad", "BlockLSTMGradV2")


def run(case: Case) -> Results:
    outputs = ORACLES[case.op](**case.operands(), **case.attributes)
    return {name: case.defined(name, value) for name, value in outputs.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_equals_tensorflow(case: Case) -> None:
    expected = recording()[case.id]
    outputs = run(case)
    assert list(outputs) == list(expected), "names and order of the outputs"
    for name, value in outputs.items():
        assert value.dtype == np.float64
        assert np.isfinite(value).all()
        assert relative_error(expected[name], value) <= TOLERANCE[case.dtype], name


def test_the_recording_covers_what_it_should() -> None:
    assert set(recording()) == {case.id for case in CASES}
    assert len(CASES) >= 250
    for op in OPS:
        cases = [case for case in CASES if case.op == op]
        assert len(cases) >= 20
        first = 0 if "seq_len_max" in SHAPES[op] else 1
        for axis in range(first, 4):
            sizes = {case.sizes[axis] for case in cases}
            assert 1 in sizes
            assert any(size > 1 and size % 2 for size in sizes)
        assert {case.dtype for case in cases} == ({"float32"} if op.startswith("GRU") else {"float32", "float16"})
        if "seq_len_max" in SHAPES[op]:
            for reached in (
                lambda c: c.steps == 0,
                lambda c: 0 < c.steps < c.sizes[0],
                lambda c: c.steps == c.sizes[0],
            ):
                assert sum(map(reached, cases)) >= 5
        if "cs_grad" in SHAPES[op]:
            assert {case.zero_cs_grad for case in cases} == {False, True}
            assert {case.style for case in cases} == {"plausible", "wild"}


@pytest.mark.parametrize("op", [*FORWARD_SEQUENCES, "LSTMBlockCell"])
def test_the_recorded_clips_are_active(op: str) -> None:
    reached = 0
    for case in CASES:
        if case.op == op and case.attributes["cell_clip"] > 0:
            free = ORACLES[op](**case.operands(), **{**case.attributes, "cell_clip": 0.0})["cs"]
            reached += bool((np.abs(free) > case.attributes["cell_clip"]).any())
    assert reached >= 5


def test_changed_inputs_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.op_inputs._interval", lambda *_: (-1.0, 1.0))
    with pytest.raises(ValueError, match="record anew"):
        load_recording()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_tensorflow_still_gives_what_was_recorded(tmp_path: Path) -> None:
    # In a process of its own: TensorFlow takes seconds to import, warns on its way, and keeps its threads.
    sample, path = CASES[::5], tmp_path / "live.npz"
    command = [sys.executable, "-m", "tests.data.record_tensorflow", "--output", str(path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, *(case.id for case in sample)], cwd=root, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    live = load_recording(path)
    assert set(live) == {case.id for case in sample}
    for case in sample:
        for name, value in recording()[case.id].items():
            assert relative_error(live[case.id][name], value) <= TOLERANCE[case.dtype], (case.id, name)


DEFAULTS: dict[str, dict[str, Any]] = {
    "BlockLSTM": {"forget_bias": 1.0, "cell_clip": 3.0, "use_peephole": False},
    "BlockLSTMV2": {"cell_clip": 0.0, "use_peephole": False},
    "BlockLSTMGrad": {},
    "BlockLSTMGradV2": {},
    "LSTMBlockCell": {"forget_bias": 1.0, "cell_clip": 3.0, "use_peephole": False},
    "LSTMBlockCellGrad": {},
    "GRUBlockCell": {},
    "GRUBlockCellGrad": {},
}


@pytest.mark.parametrize("op", OPS)
def test_signature_is_tensorflows(op: str) -> None:
    parameters = inspect.signature(ORACLES[op]).parameters
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
    assert [name for name in parameters if name in SHAPES[op]] == list(SHAPES[op])
    defaults = {p.name: p.default for p in parameters.values() if p.default is not p.empty and p.name != "order"}
    assert defaults == DEFAULTS[op]
    required = {p.name for p in parameters.values() if p.default is p.empty} - set(SHAPES[op])
    assert required == ({"use_peephole"} if "Grad" in op and not op.startswith("GRU") else set())


@pytest.mark.parametrize("row", UNREAD, ids=lambda row: f"{row.op}: {row.id}")
def test_does_not_read(row: Unread) -> None:
    call = valid_inputs(row.op, steps=row.steps, **row.attributes)
    clean, poisoned = ORACLES[row.op](**call), ORACLES[row.op](**row.poison(call))
    for name, value in clean.items():
        np.testing.assert_array_equal(poisoned[name], value, err_msg=name)


@pytest.mark.parametrize("op", FORWARD_SEQUENCES)
def test_steps_past_seq_len_max_are_zeros(op: str) -> None:
    outputs = ORACLES[op](**valid_inputs(op, T=5, steps=3))
    for value in outputs.values():
        assert value[:3].all()
        assert not value[3:].any()


@pytest.mark.parametrize("op", BACKWARD_SEQUENCES)
def test_x_grad_past_seq_len_max_is_zero(op: str) -> None:
    x_grad = ORACLES[op](**valid_inputs(op, T=5, steps=3))["x_grad"]
    assert x_grad[:3].all()
    assert not x_grad[3:].any()


@pytest.mark.parametrize("op", [*FORWARD_SEQUENCES, *BACKWARD_SEQUENCES])
@pytest.mark.parametrize("sizes", [{"T": 0}, {"B": 0}, {"steps": 0}], ids=str)
def test_nothing_to_do_gives_zeros(op: str, sizes: dict[str, int]) -> None:
    call = valid_inputs(op, **sizes)  # type: ignore[arg-type]
    outputs = ORACLES[op](**call)
    forward = op in FORWARD_SEQUENCES
    names = dict.fromkeys(outputs, "") if forward else {name: name.removesuffix("_grad") for name in outputs}
    for name, operand in names.items():
        shape = (*call["x"].shape[:2], call["cs_prev"].shape[1]) if forward else call[operand].shape
        assert outputs[name].shape == shape
        assert not outputs[name].any(), "the initial states are not passed through"


@pytest.mark.parametrize("op", ["LSTMBlockCell", "LSTMBlockCellGrad", "GRUBlockCell", "GRUBlockCellGrad"])
@pytest.mark.parametrize("sizes", [{"B": 0}, {"I": 0}, {"H": 0}], ids=str)
def test_cells_take_empty_operands(op: str, sizes: dict[str, int]) -> None:
    outputs = ORACLES[op](**valid_inputs(op, **sizes))  # type: ignore[arg-type]
    assert all(np.isfinite(value).all() for value in outputs.values())


@pytest.mark.parametrize(("given", "used"), [(99, 4), (-1, 0), (-(2**63), 0)])
@pytest.mark.parametrize("op", [*FORWARD_SEQUENCES, *BACKWARD_SEQUENCES])
def test_seq_len_max_is_clamped(op: str, given: int, used: int) -> None:
    call = valid_inputs(op)
    clamped = ORACLES[op](**{**call, "seq_len_max": given})
    for name, value in ORACLES[op](**{**call, "seq_len_max": used}).items():
        np.testing.assert_array_equal(clamped[name], value)


@pytest.mark.parametrize("op", [*BACKWARD_SEQUENCES, "LSTMBlockCellGrad"])
def test_peephole_gradients_are_zero_without_peepholes(op: str) -> None:
    call = valid_inputs(op, use_peephole=False)
    outputs = ORACLES[op](**call)
    for name in ("wci", "wcf", "wco"):
        assert outputs[f"{name}_grad"].shape == call[name].shape
        assert not outputs[f"{name}_grad"].any()


def test_the_cell_clip_has_no_gradient_of_its_own() -> None:
    # TensorFlow's kernel on this cell: 4.76 is clipped to 1.0, and d cs / d cs_prev = f = 0.9526, not 0.
    zero, one = np.zeros((1, 1)), np.ones((1, 1))
    weights = {"w": np.zeros((2, 4)), **dict.fromkeys(("wci", "wcf", "wco"), np.zeros(1)), "b": [-50.0, 0, 2, 0]}
    call = {"x": zero, "cs_prev": 5 * one, "h_prev": zero, **weights}
    saved = ORACLES["LSTMBlockCell"](**call, forget_bias=1.0, cell_clip=1.0)
    assert saved["cs"] == 1.0
    del saved["h"]
    gradient = ORACLES["LSTMBlockCellGrad"](**call, **saved, cs_grad=one, h_grad=zero, use_peephole=False)
    assert gradient["cs_prev_grad"][0, 0] == pytest.approx(0.9526, abs=1e-4)


def test_nan_stays_nan_through_the_clip() -> None:
    call = valid_inputs("LSTMBlockCell", cell_clip=0.5)
    call["cs_prev"][0, 0] = np.nan
    cs = ORACLES["LSTMBlockCell"](**call)["cs"]
    assert np.isnan(cs[0, 0])
    assert np.abs(cs[1]).max() <= 0.5


def test_attributes_are_rounded_to_the_operands_dtype() -> None:
    half, single = np.zeros(1, np.float16), np.zeros(1, np.float32)
    assert round_attribute(0.1, single) == float(np.float32(0.1))
    assert round_attribute(0.1, half) == float(np.float16(0.1))
    assert round_attribute(1e9, half) == np.inf
    assert np.isnan(round_attribute(float("nan"), half))


def test_gates_far_from_zero_neither_overflow_nor_warn() -> None:
    call = valid_inputs("GRUBlockCell")
    call["b_ru"] = np.array([800.0, -800.0] * 4)
    outputs = ORACLES["GRUBlockCell"](**call)
    np.testing.assert_array_equal(outputs["r"][0], [1.0, 0.0, 1.0, 0.0])
