"""Random number generators: versions of them that onnx has, but the installed onnxruntime does not run.

Their forms of opset 22 differ from the older ones only in the dtypes they allow; onnxruntime up to 1.31 has no kernels
for them.
"""

from __future__ import annotations

import functools
from typing import Any

import onnx

from lstm_lower.graph import standard as std
from lstm_lower.passes.opset.installed import runs
from lstm_lower.passes.opset.registry import Site, since

# What a node needs beyond a matrix of zeros as its input.
_ATTRIBUTES: dict[type[std.Standard], dict[str, Any]] = {
    std.Bernoulli: {},
    std.RandomNormal: {"shape": [1, 1]},
    std.RandomNormalLike: {},
    std.RandomUniform: {"shape": [1, 1]},
    std.RandomUniformLike: {},
    std.Multinomial: {"dtype": onnx.TensorProto.INT32},
}


@since(22, *_ATTRIBUTES)
def generator_with_a_kernel(site: Site) -> None:
    """Refuses what onnxruntime would refuse only when the model is loaded."""
    if not has_kernel(site.node.op_type, 22):
        raise site.refusal("the node", "opset 21 or older (onnxruntime runs no newer form of it)", site.target)


@functools.cache
def has_kernel(op_type: str, version: int) -> bool:
    """Whether onnxruntime loads the operator."""
    attributes = _ATTRIBUTES[std.VIEWS[op_type]]
    node = onnx.helper.make_node(op_type, [] if "shape" in attributes else ["x"], ["y"], **attributes)
    return runs(node, version, attributes.get("dtype", onnx.TensorProto.FLOAT))
