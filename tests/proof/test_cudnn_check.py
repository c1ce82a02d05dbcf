"""`check` proves models with cuDNN ops on random feeds."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from lstm_lower.runtime.proof.check import check, gradient_rows
from lstm_lower.runtime.proof.oracles.finite_differences import check_backward
from tests.support.cudnn_cases import Case
from tests.support.cudnn_models import attributes_of, node_model, training_model
from tests.support.models import DOMAIN

CASES = [
    Case("lstm", 2, bidirectional=True, ragged=True),
    Case("gru", 1, ragged=True, batch_major=True),
    Case("rnn_tanh", 2, masks=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_backward_alone(case: Case) -> None:
    """Its operand `output` must be the forward op's, which random feeds take care of."""
    model = node_model("CudnnRNNBackpropV3", case.operands(dtype=np.float32), attributes_of("CudnnRNNBackpropV3", case))
    report = check(model)
    assert report.passed, report


def test_operands_computed_in_the_graph() -> None:
    case = CASES[0]
    model = node_model("CudnnRNNBackpropV3", case.operands(dtype=np.float32), attributes_of("CudnnRNNBackpropV3", case))
    model.graph.node.insert(0, helper.make_node("Tanh", ["raw"], ["input"]))
    next(value for value in model.graph.input if value.name == "input").name = "raw"
    assert check(model).passed


def test_training_graph() -> None:
    case = CASES[0]
    report = check(training_model(case, case.operands(dtype=np.float32)))
    assert report.passed, report


def test_params_ops() -> None:
    """Split into parts, scaled, and packed again."""
    at = {"rnn_mode": "gru", "direction": "bidirectional", "num_params": 12, "domain": DOMAIN}
    sizes = ["num_layers", "num_units", "input_size"]
    parts = [f"part_{index}" for index in range(24)]
    nodes = [
        helper.make_node("CudnnRNNParamsToCanonical", [*sizes, "params"], parts, **at),
        helper.make_node("Mul", [parts[0], parts[0]], ["squared"]),
        helper.make_node("CudnnRNNCanonicalToParams", [*sizes, "squared", *parts[1:]], ["out"], **at),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("params", onnx.TensorProto.FLOAT, [2 * (3 * 4 * (3 + 4) + 2 * 12)])],
        [helper.make_empty_tensor_value_info("out")],
        [onnx.numpy_helper.from_array(np.array(n, np.int32), name) for name, n in zip(sizes, (1, 4, 3), strict=True)],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    assert check(helper.make_model(graph, opset_imports=imports, ir_version=9)).passed


@pytest.mark.parametrize("case", [*CASES, Case("lstm", 2, proj=2, bidirectional=True)], ids=str)
def test_gradient_rows(case: Case) -> None:
    """The backward ops' oracles against central differences of their forward ops' oracles."""
    operands = case.operands(dtype=np.float32)
    model = node_model("CudnnRNNBackpropV3", operands, attributes_of("CudnnRNNBackpropV3", case))
    rows = gradient_rows(ir.from_proto(model))
    assert {row.operand for row in rows} == {"input", "input_h", "input_c", "params"}
    assert all(row.verdict == "ok" for row in rows), rows


@pytest.mark.parametrize("op", ["CudnnRNNBackprop", "CudnnRNNBackpropV2"])
def test_older_versions_are_gradients_too(op: str) -> None:
    errors = check_backward(op, {"direction": "bidirectional", "input_mode": "skip_input"}, directions=3)
    assert all(error.relative < 1e-7 for error in errors)
