"""The shape of what the cuDNN rules emit, for one smallest case each: before and after."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from lstm_lower.graph.dump import dump
from lstm_lower.passes.composites import LowerCompositesPass
from lstm_lower.passes.shapes import InferShapesPass
from tests.support.cudnn_cases import Case
from tests.support.cudnn_models import attributes_of, node_model
from tests.support.models import split_kwargs

TINY = {"steps": 2, "batch": 1}
INFERENCE = ["output", "output_h"]


def check(golden, name: str, model: onnx.ModelProto) -> None:
    graph = ir.from_proto(model)
    before = dump(graph)
    golden(name, before=before, lowered=dump(LowerCompositesPass()(InferShapesPass()(graph)).model))


@pytest.mark.parametrize(
    ("name", "op", "case", "outputs"),
    [
        ("forward_lstm", "CudnnRNNV3", Case("lstm", ragged=True, **TINY), None),
        ("forward_dropout", "CudnnRNNV3", Case("rnn_relu", 2, masks=True, **TINY), None),
        ("backward_lstm", "CudnnRNNBackprop", Case("lstm", **TINY), None),
        ("backward_gru", "CudnnRNNBackpropV3", Case("gru", ragged=True, **TINY), None),
        ("inference_gru", "CudnnRNNV3", Case("gru", bidirectional=True, ragged=True, **TINY), INFERENCE),
    ],
)
def test_sequence_ops(name: str, op: str, case: Case, outputs: list[str] | None, golden) -> None:
    operands = case.operands(dtype=np.float32)
    check(golden, f"cudnn_{name}", node_model(op, operands, attributes_of(op, case), outputs=outputs))


SIZES = {name: np.array(size, np.int32) for name, size in (("num_layers", 1), ("num_units", 2), ("input_size", 1))}


def test_params_size(golden) -> None:
    operands, attributes = split_kwargs("CudnnRNNParamsSize", {**SIZES, "rnn_mode": "rnn_tanh"})
    check(golden, "cudnn_params_size", node_model("CudnnRNNParamsSize", operands, attributes, constants=list(SIZES)))


def test_params_lists(golden) -> None:
    """Split and packed again."""
    attributes = {"rnn_mode": "rnn_tanh", "num_params": 2}
    parts = [f"part_{index}" for index in range(4)]
    domain = "tf"
    nodes = [
        onnx.helper.make_node(
            "CudnnRNNParamsToCanonical", [*SIZES, "params"], parts, name="split", domain=domain, **attributes
        ),
        onnx.helper.make_node(
            "CudnnRNNCanonicalToParams", [*SIZES, *parts], ["packed"], name="pack", domain=domain, **attributes
        ),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "graph",
        [onnx.helper.make_tensor_value_info("params", onnx.TensorProto.FLOAT, [10])],
        [onnx.helper.make_empty_tensor_value_info("packed")],
        [onnx.numpy_helper.from_array(value, name) for name, value in SIZES.items()],
    )
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(domain, 1)]
    check(golden, "cudnn_params_lists", onnx.helper.make_model(graph, opset_imports=imports, ir_version=9))
