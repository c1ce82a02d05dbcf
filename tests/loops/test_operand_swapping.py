"""A repeated product of a single row takes a large weight transposed."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import lstm_lower as ll


def loop(rows: int, units: int, *, transposed: bool) -> onnx.ModelProto:
    """h = tanh(h @ w) over three steps; perhaps w is a transpose already."""
    state = helper.make_tensor_value_info("h", TensorProto.FLOAT, [rows, units])
    step = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, units])
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "weight"], ["product"]),
            helper.make_node("Add", ["product", "x"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["h_next"]),
            helper.make_node("Identity", ["h_next"], ["y"]),
        ],
        "body",
        [state, step],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, units]) for name in ("h_next", "y")],
    )
    nodes = [
        helper.make_node("Transpose" if transposed else "Identity", ["w"], ["weight"]),
        helper.make_node("Scan", ["h0", "xs"], ["final", "ys"], body=body, num_scan_inputs=1),
    ]
    shapes = {"h0": [rows, units], "xs": [3, rows, units], "w": [units, units]}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_empty_tensor_value_info(name) for name in ("final", "ys")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("rows", "units", "product", "turned"),
    [(1, 384, "Gemm", True), (1, 32, "MatMul", False), (2, 384, "MatMul", False)],
)
def test_single_row(rows: int, units: int, product: str, turned: bool, transposed: bool) -> None:
    model = loop(rows, units, transposed=transposed)
    optimized = ll.optimize(model)
    onnx.checker.check_model(optimized, full_check=True)
    scan = next(node for node in optimized.graph.node if node.op_type == "Scan")
    body = next(attribute.g for attribute in scan.attribute if attribute.name == "body")
    assert [node.op_type for node in body.node if node.op_type in ("MatMul", "Gemm")] == [product]
    # A transpose of a transpose is what was there at first.
    transposes = sum(node.op_type == "Transpose" for node in optimized.graph.node)
    assert transposes == (transposed != turned)
    random = np.random.default_rng(0)
    feeds = {
        value.name: (random.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim]) * 0.1).astype("f")
        for value in model.graph.input
    }
    before, after = (
        ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for m in (model, optimized)
    )
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
