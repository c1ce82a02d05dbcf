"""TensorFlow's ordinary ops: definitions, oracles and lowered models against TensorFlow and its recorded results."""

from __future__ import annotations

import zlib

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.opdef import REGISTRY
from tests.rules.test_gradients import run
from tests.support.ordinary.case import BFLOAT16, Case, recording
from tests.support.ordinary.families import MODULES, all_cases
from tests.support.ordinary.models import KERNEL, ROUNDING, assert_close, model_of, oracle_results
from tests.support.recorded import assert_recorded

CASES = [pytest.param(family, case, id=case.id) for family, case in all_cases()]
RECORDED = [(family, case) for family, case in all_cases() if case.recorded]
UNRANKED = [pytest.param(family, case, id=case.id) for family, case in all_cases() if case.unranked]


@pytest.mark.parametrize("op", sorted({case.op for _, case in RECORDED}))
def test_oracle_equals_tensorflow(op: str) -> None:
    for family, case in RECORDED:
        if case.op != op:
            continue
        exact, recorded = oracle_results(case), recording(family)[case.id]
        assert list(exact) == list(recorded), case.id
        for name, kernel in recorded.items():
            assert_close(case, f"{case.id}: {name}", kernel, exact[name], KERNEL.get(kernel.dtype.name, 0))


def assert_lowered(family: str, case: Case, opset: int, *, symbolic: bool, unranked: bool = False) -> None:
    exact = oracle_results(case)
    kernels = recording(family)[case.id] if case.recorded else {}
    dtypes = [kernels[name].dtype if kernels else _narrow(case, value) for name, value in exact.items()]
    model, feeds = model_of(case, opset, dtypes, symbolic=symbolic, unranked=unranked)
    if symbolic and opset < case.since:
        with pytest.raises(ll.UnsupportedOpError):
            ll.lower(model)
        return
    lowered = ll.lower(model)
    assert {node.domain for node in lowered.graph.node} <= {""}
    if not unranked:
        # The checker asks for the rank of every output.
        onnx.checker.check_model(lowered, full_check=True)
    for (name, value), ours, dtype in zip(exact.items(), run(lowered, feeds), dtypes, strict=True):
        if dtype == BFLOAT16:
            ours = ours.astype(BFLOAT16)
        assert ours.dtype == dtype, name
        assert_close(case, name, ours, value, ROUNDING.get(dtype.name, 0), kernels.get(name))


def _narrow(case: Case, exact: np.ndarray) -> np.dtype:
    """The dtype of a result that TensorFlow did not compute: integers as they are, else that of the operands."""
    if exact.dtype.kind in "biu":
        return exact.dtype
    parts = [part for value in case.operands.values() for part in (value if isinstance(value, list) else [value])]
    return next(part.dtype for part in parts if part.dtype.kind not in "biu")


@pytest.mark.parametrize(("family", "case"), CASES)
def test_lowered_equals_tensorflow(family: str, case: Case) -> None:
    """With known sizes, or open ones at an old or a new opset: each form for a third of an op's cases."""
    opset, symbolic = [(13, True), (18, False), (21, True)][zlib.crc32(case.id.encode()) % 3]
    assert_lowered(family, case, opset, symbolic=symbolic)


@pytest.mark.parametrize(("family", "case"), UNRANKED)
def test_lowered_without_ranks_equals_tensorflow(family: str, case: Case) -> None:
    assert_lowered(family, case, 21, symbolic=True, unranked=True)


def test_every_op_has_a_case() -> None:
    ours = {op for op in REGISTRY.values() if op.__module__.startswith("lstm_lower.ops.ordinary.")}
    # What draws has no results to compare, but statistics: test_drawing.py.
    assert {op.op_type for op in ours if not op.draws({})} == {case.op for _, case in all_cases()}


def test_definitions_are_those_of_tensorflow() -> None:
    pytest.importorskip("tensorflow")
    from tests.data.record_ordinary import differences

    ours = [op for op in REGISTRY.values() if op.__module__.startswith("lstm_lower.ops.ordinary.")]
    assert [line for op in ours for line in differences(op)] == []


@pytest.mark.parametrize("family", MODULES)
def test_recording_is_what_tensorflow_computes(family: str) -> None:
    pytest.importorskip("tensorflow")
    from tests.data.record_ordinary import record_family

    kept = recording(family)
    computed = record_family(family)
    assert list(computed) == list(kept)
    for case, results in computed.items():
        for name, value in results.items():
            assert value.dtype == kept[case][name].dtype, (case, name)
            assert_recorded(value, kept[case][name], 1e-6, case)
