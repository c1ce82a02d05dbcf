"""Eager calls of ops that the lowering must know an operand of: every value makes a session of its own."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.opdef import REGISTRY
from tests.support import gradient_cases, math_cases
from tests.support.gradient_cases import Case

CASES = [case for case in (*gradient_cases.cases(), *math_cases.cases()) if case.constants]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_eager_equals_tensorflow(case: Case) -> None:
    results = getattr(ll.raw_ops, case.op)(**case.operands, **case.attributes)
    results = results._asdict() if hasattr(results, "_asdict") else {REGISTRY[case.op].outputs[0].name: results}
    for name, kernel in (gradient_cases.recording() | math_cases.recording())[case.id].items():
        ours = results[name]
        np.testing.assert_allclose(ours, kernel, rtol=4e-3 if ours.dtype == np.float16 else 2e-5)
        assert ours.shape == kernel.shape
