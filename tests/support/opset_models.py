"""Moving models between opsets and running them, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from tests.support.opset_case import Array

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


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


def info(name: str, dtype: int, *shape: int | str | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    opset: int,
    **fields: Any,
) -> onnx.ModelProto:
    opset_id = helper.make_opsetid("", opset)
    graph = helper.make_graph(nodes, "graph", inputs, outputs, **fields)
    ir_version = helper.find_min_ir_version_for([opset_id])
    return helper.make_model(graph, opset_imports=[opset_id], ir_version=max(ir_version, 8))
