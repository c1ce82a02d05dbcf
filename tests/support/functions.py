"""Models with functions."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1), helper.make_opsetid("tf", 1)]


def function(
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: tuple[str, ...] = ("a",),
    outputs: tuple[str, ...] = ("b",),
    **fields,
) -> onnx.FunctionProto:
    """A function of domain `mine`."""
    return helper.make_function("mine", name, inputs, outputs, nodes, fields.pop("opsets", OPSETS), **fields)


def call(name: str, inputs: list[str], outputs: list[str], **attributes) -> onnx.NodeProto:
    """A call of it."""
    return helper.make_node(name, inputs, outputs, domain="mine", **attributes)


def model_of(
    nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto], outputs: tuple[str, ...] = ("y",)
) -> onnx.ModelProto:
    """A model with one input `x`, float32 [2]."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", *outputs)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS, ir_version=8)


def doubling_chain(length: int) -> onnx.ModelProto:
    """Functions of which each calls the next one twice."""
    functions = [
        function(f"f{level}", [call(f"f{level + 1}", ["a"], ["c"]), call(f"f{level + 1}", ["c"], ["b"])])
        for level in range(length)
    ]
    last = function(f"f{length}", [helper.make_node("Neg", ["a"], ["b"])])
    return model_of([call("f0", ["x"], ["y"])], [*functions, last])
