"""What the installed onnxruntime runs, which decides what a lowered model may hold.

It tells neither its newest opset nor its kernels but by refusing a model, so the smallest ones are tried.
"""

from __future__ import annotations

import functools

import onnx
import onnxruntime as ort

from lstm_lower.graph import standard as std

MIN_OPSET = std.OLDEST_VIEWED


@functools.cache
def newest_opset() -> int:
    """The newest `ai.onnx` version that both the installed onnx and onnxruntime know."""
    node = onnx.helper.make_node(std.Identity.op_type, ["x"], ["y"])
    versions = range(onnx.defs.onnx_opset_version(), MIN_OPSET, -1)
    return next((version for version in versions if runs(node, version)), MIN_OPSET)


def runs(node: onnx.NodeProto, version: int, result: int = onnx.TensorProto.FLOAT) -> bool:
    """Whether onnxruntime loads a model of one node.

    Args:
        node: inputs are float32 of shape [1, 1], its one output is `y`.
        version: of `ai.onnx`.
        result: dtype of the output.
    """
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1]) for name in node.input]
    output = onnx.helper.make_tensor_value_info("y", result, None)
    imports = [onnx.helper.make_opsetid("", version)]
    graph = onnx.helper.make_graph([node], "probe", inputs, [output])
    ir_version = min(onnx.helper.find_min_ir_version_for(imports), 10)
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
        return False
    return True
