"""Operators moved between opsets give the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from lstm_lower.passes.opset.forms import changes
from lstm_lower.passes.opset.installed import newest_opset
from tests.support.opset_case import Array, Case
from tests.support.opset_cases import DOWNWARDS, UPWARDS
from tests.support.opset_models import RUN, convert


def results_of(case: Case) -> list[Array]:
    """What the node gives in its own version."""
    runtime = RUN[case.origin or case.runtimes[0]]
    unknown = [onnx.ValueInfoProto(name=name) for name in case.names]
    model = case.model(results=[np.zeros(())] * case.outputs)
    del model.graph.output[:]
    model.graph.output.extend(unknown)
    return runtime(model, case.feeds)


def assert_equal(case: Case, got: list[Array], expected: list[Array]) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if case.tolerance:
            np.testing.assert_allclose(
                one.astype(np.float64), other.astype(np.float64), rtol=case.tolerance, atol=case.tolerance
            )
        else:
            np.testing.assert_array_equal(one, other)


def targets_of(case: Case) -> tuple[int, ...]:
    """Every version just before one in which the operator changed."""
    boundaries = {change - 1 for change in changes(case.op, case.opset, 13)} | {13}
    return case.only or tuple(sorted(target for target in boundaries if target < case.opset))


def known(cases: list[Case]) -> list[Case]:
    """The cases that the installed onnx has forms for, and that a runtime here can run."""
    return [case for case in cases if case.runtimes and case.opset <= onnx.defs.onnx_opset_version()]


def pairs(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, form, id=f"{case}-{form}") for case in known(cases) for form in case.forms]


@pytest.mark.parametrize(("case", "form"), pairs(DOWNWARDS))
def test_down(case: Case, form: str) -> None:
    expected = results_of(case)
    for target in targets_of(case):
        model = convert(case.model(form=form, results=expected), target)
        for runtime in case.runtimes:
            assert_equal(case, RUN[runtime](model, case.feeds), expected)


@pytest.mark.parametrize(("case", "form"), pairs(UPWARDS))
def test_up(case: Case, form: str) -> None:
    expected = results_of(case)
    for target in (target for target in case.only if target <= newest_opset()):
        model = convert(case.model(form=form, results=expected), target)
        for runtime in case.runtimes:
            assert_equal(case, RUN[runtime](model, case.feeds), expected)
