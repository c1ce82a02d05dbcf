"""Verdicts on runs next to a framework's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from lstm_lower.records import state
from lstm_lower.records.state import Role, StatePair
from lstm_lower.runtime.proof.steps import Runs, compare, start_values

TRUTH = np.array([1.0, -2.0, 0.5])


def runs(shift: float, dtype: type = np.float32, first: float | None = None) -> Runs:
    """Two runs, after which the variable is off by `shift`, after the first by `first` where that is another number."""
    shifts = (shift if first is None else first, shift)
    return [({"y": TRUTH.astype(dtype)}, {"w": (TRUTH + each).astype(dtype)}) for each in shifts]


def verdict(
    ours: float, theirs: float = 0.0, *, wide: bool = True, moved: Sequence[float] = (), drawn: float | None = None
) -> str:
    (output, variable) = compare(
        runs(ours),
        runs(theirs),
        wide=runs(0.0, np.float64) if wide else None,
        moved=[runs(shift) for shift in (moved if wide else [2 * theirs])],
        drawn=None if drawn is None else runs(drawn),
        rtol=1e-5,
        atol=1e-7,
    )
    assert (output.name, output.kind, output.verdict) == ("y", "output", "ok")
    assert (variable.name, variable.kind) == ("w", "variable")
    return variable.verdict


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (1e-6, 0.0, "ok"),
        (1e-4, 0.0, "out of tolerance"),
        (1e-4, 1e-5, "out of tolerance"),
        (1e-4, -1e-4, "as near as the original"),
        (3e-4, 1e-4, "as near as the original"),
        (4e-4, 1e-4, "out of tolerance"),
        (0.0, 0.1, "not decided"),
        (np.nan, 0.0, "out of tolerance"),
        (0.0, np.nan, "not finite in the original"),
    ],
)
def test_an_error_may_be_as_large_as_the_frameworks_own(ours: float, theirs: float, expected: str) -> None:
    assert verdict(ours, theirs) == expected


def test_without_float64_the_framework_is_compared_with_itself() -> None:
    assert verdict(0.0, 1e-4, wide=False) == "as near as the original"
    assert verdict(-1e-3, 1e-4, wide=False) == "out of tolerance"


def test_what_moved_weights_make_of_it_is_accepted() -> None:
    assert verdict(1e-4, 1e-5, moved=[2e-4]) == "as near as moved weights"
    assert verdict(1e-4, 1e-5, moved=[1e-5]) == "out of tolerance"
    assert verdict(np.nan, 1e-5, moved=[2e-4]) == "out of tolerance"
    assert verdict(0.2, 1e-5, moved=[0.3]) == "not decided"
    assert verdict(1e-4, 1e-4, moved=[2e-4]) == "ok"
    assert verdict(1e-4, 1e-5, moved=[5e-5, 2e-4, 5e-5]) == "as near as moved weights"


@pytest.mark.parametrize(
    ("first", "later", "theirs", "expected"),
    [
        (0.0, 0.2, 0.3, ("ok", 1)),
        (1e-4, 0.2, 0.3, ("out of tolerance", 1)),
        (0.0, 0.0, np.nan, ("ok", 1)),
        (0.0, 1e-4, 0.0, ("out of tolerance", 2)),
        (0.0, 0.0, 0.0, ("ok", 2)),
    ],
)
def test_the_first_run_tells_where_later_ones_cannot(
    first: float, later: float, theirs: float, expected: tuple[str, int]
) -> None:
    """Weights that are moved by a unit in the last place change what TensorFlow has after the second run."""
    ours, original = runs(later, first=first), runs(0.0 if theirs == 0.3 else theirs, first=0.0)
    moved = [runs(theirs if np.isfinite(theirs) else 0.0, first=0.0)]
    _, row = compare(ours, original, wide=None, moved=moved, drawn=None, rtol=1e-5, atol=1e-7)
    assert (row.verdict, row.steps) == expected


def test_what_draws_decide_is_random() -> None:
    assert verdict(1.0, 0.0, drawn=0.5) == "random"
    assert verdict(1.0, 0.0, drawn=0.0) == "out of tolerance"


def test_values_that_nobody_has_are_drawn() -> None:
    kinds = {"w": ("w", [3, 2], 1), "v": ("w/Adam_1", [3, 2], 1), "p": ("beta1_power", [], 1), "i": ("step", [], 7)}
    ends = [
        [helper.make_tensor_value_info(f"{name}{mark}", dtype, shape) for name, (_, shape, dtype) in kinds.items()]
        for mark in ("", "/new")
    ]
    nodes = [helper.make_node("Identity", [name], [f"{name}/new"]) for name in kinds]
    held = numpy_helper.from_array(np.full((3, 2), 7, np.float32), "w")
    model = ir.from_proto(helper.make_model(helper.make_graph(nodes, "step", *ends, [held])))
    roles: dict[str, Role] = {"v": "slot", "p": "slot", "i": "counter"}
    pairs = [
        StatePair(name, f"{name}/new", roles.get(name, "weight"), variable=variable)
        for name, (variable, *_) in kinds.items()
    ]
    state.write(model, state.TrainingState(tuple(pairs)))
    found = start_values(model, seed=1)
    assert {name: (array.shape, array.dtype.name) for name, array in found.items()} == {
        "w": ((3, 2), "float32"),
        "w/Adam_1": ((3, 2), "float32"),
        "beta1_power": ((), "float32"),
        "step": ((), "int64"),
    }
    assert (found["w"] == 7).all()
    assert (found["w/Adam_1"] > 0).all()
    assert 0 < found["beta1_power"] < 1
    assert found["step"] == 0
