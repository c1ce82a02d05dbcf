"""Operators moved between opsets give the same results, and what cannot be moved is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from lstm_lower.passes.opset import ConvertOpsetPass
from lstm_lower.passes.versions.forms import changes
from tests.opset_cases import DOWNWARDS, UPWARDS, Array, Case


def convert(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Moves a model, and checks what every result has to fulfil."""
    converted = ir.from_proto(model)
    ConvertOpsetPass(target)(converted)
    result = ir.to_proto(converted)
    opset = onnx.helper.make_opsetid("", target)
    assert list(result.opset_import) == [opset]
    result.ir_version = max(result.ir_version, onnx.helper.find_min_ir_version_for([opset]))
    onnx.checker.check_model(result, full_check=True)
    onnx.shape_inference.infer_shapes(result, check_type=True, strict_mode=True, data_prop=True)
    assert [value.name for value in result.graph.input] == [value.name for value in model.graph.input]
    assert [value.name for value in result.graph.output] == [value.name for value in model.graph.output]
    return result


def run_ort(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def run_reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, feeds)]


RUN = {"o": run_ort, "r": run_reference}


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


def pairs(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, form, id=f"{case}-{form}") for case in cases if case.runtimes for form in case.forms]


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
    for target in case.only:
        model = convert(case.model(form=form, results=expected), target)
        for runtime in case.runtimes:
            assert_equal(case, RUN[runtime](model, case.feeds), expected)
