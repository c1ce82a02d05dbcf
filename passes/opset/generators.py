"""Random number generators: versions of them that onnx has, but the installed onnxruntime does not run.

Their forms of opset 22 differ from the older ones only in the dtypes they allow; onnxruntime up to 1.31 has no kernels
for them.
"""

from __future__ import annotations

import functools
from typing import Any

import onnx
import onnxruntime as ort

from lstm_lower.passes.opset.registry import Site, since

# What a node needs beyond a matrix of zeros as its input.
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Bernoulli": {},
    "RandomNormal": {"shape": [1, 1]},
    "RandomNormalLike": {},
    "RandomUniform": {"shape": [1, 1]},
    "RandomUniformLike": {},
    "Multinomial": {"dtype": onnx.TensorProto.INT32},
}


@since(22, *_ATTRIBUTES)
def generator_with_a_kernel(site: Site) -> None:
    """Refuses what onnxruntime would refuse only when the model is loaded."""
    if not _has_kernel(site.node.op_type, 22):
        raise site.refusal("the node", "opset 21 or older (onnxruntime runs no newer form of it)", site.target)


@functools.cache
def _has_kernel(op_type: str, version: int) -> bool:
    """Whether onnxruntime loads the operator."""
    attributes = _ATTRIBUTES[op_type]
    dtype = attributes.get("dtype", onnx.TensorProto.FLOAT)
    given = [] if "shape" in attributes else ["x"]
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1]) for name in given]
    node = onnx.helper.make_node(op_type, given, ["y"], **attributes)
    result = onnx.helper.make_tensor_value_info("y", dtype, None)
    imports = [onnx.helper.make_opsetid("", version)]
    graph = onnx.helper.make_graph([node], "probe", inputs, [result])
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
        return False
    return True
