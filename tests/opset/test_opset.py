"""Operators moved between opsets give the same results."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from lstm_lower.graph.operator_versions import changes
from lstm_lower.passes.opset.installed import newest_opset
from tests.support.examples import TIMES, named
from tests.support.opset_case import Array, Case
from tests.support.opset_cases import DOWNWARDS, UPWARDS
from tests.support.opset_models import RUN, convert
from tests.support.side_by_side import SideBySide

FORMS = ("static", "open", "nested")


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


def grouped(cases: list[Case]) -> list[Any]:
    """Parameters of an operator's cases that run in the same runtimes after the same moves."""
    found: dict[tuple[Any, ...], list[Case]] = {}
    for case in known(cases):
        found.setdefault((case.op, case.opset, case.runtimes, *case.only), []).append(case)
    return [pytest.param(group, id="-".join(map(str, key))) for key, group in found.items()]


def moves(targets: Sequence[int]) -> list[tuple[int, str]]:
    """To the first target in all forms of a model, to the others in one each, in turn."""
    if TIMES > 1:
        return list(itertools.product(targets, FORMS))
    turns = [(target, FORMS[number % len(FORMS)]) for number, target in enumerate(targets[1:])]
    return [*itertools.product(targets[:1], FORMS), *turns]


def assert_moved(group: list[Case], targets: Sequence[int]) -> None:
    """Compares the cases, side by side in each form of a model, after each move."""
    expected = [results_of(case) for case in group]
    for target, form in moves(targets):
        taken = [(case, results) for case, results in zip(group, expected, strict=True) if form in case.forms]
        together = SideBySide()
        for case, results in taken:
            together.add(case.model(form=form, results=results), case.feeds)
        if not taken:
            continue
        model = convert(together.model(), target)
        for runtime in group[0].runtimes:
            got = together.results(RUN[runtime](model, together.feeds))
            for (case, results), found in zip(taken, got, strict=True):
                with named(f"{case}, {form}, moved to {target}"):
                    assert_equal(case, [*found], results)


@pytest.mark.slow
@pytest.mark.parametrize("group", grouped(DOWNWARDS))
def test_down(group: list[Case]) -> None:
    assert_moved(group, targets_of(group[0]))


@pytest.mark.parametrize("group", grouped(UPWARDS))
def test_up(group: list[Case]) -> None:
    assert_moved(group, [target for target in group[0].only if target <= newest_opset()])
