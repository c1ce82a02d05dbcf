"""Small models of one composite node, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from lstm_lower import opdef

DOMAIN = "ai.onnx.converters.tensorflow"


def split_kwargs(op: str, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divides keyword arguments into operands and attributes."""
    operands = {operand.name for operand in opdef.REGISTRY[op].inputs}
    given = {name: np.asarray(value) for name, value in kwargs.items() if name in operands}
    return given, {name: value for name, value in kwargs.items() if name not in operands}


def single_node_model(
    op: str,
    kwargs: Mapping[str, Any],
    *,
    opset: int = 18,
    domain: str = DOMAIN,
    symbolic: bool = False,
    constants: tuple[str, ...] = (),
) -> onnx.ModelProto:
    """A model whose inputs are the op's operands and whose outputs are its outputs.

    Args:
        op: op type.
        kwargs: operands and attributes; the operands give dtypes and sizes.
        opset: version of `ai.onnx`.
        domain: domain of the node.
        symbolic: leave every size open.
        constants: operands that become initializers.
    """
    definition = opdef.REGISTRY[op]
    operands, attributes = split_kwargs(op, kwargs)
    element = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in operands.items()}
    inputs = []
    for name, array in operands.items():
        shape: list[int | None] = [None] * array.ndim if symbolic else list(array.shape)
        inputs.append(helper.make_tensor_value_info(name, element[name], shape))
    names = [operand.name for operand in definition.inputs]
    present = [name if name in operands else "" for name in names]
    while present and not present[-1]:
        present.pop()
    fields = {name: int(value) if isinstance(value, bool) else value for name, value in attributes.items()}
    outputs = [f"{output.name}_out" for output in definition.outputs]
    node = helper.make_node(op, present, outputs, name="node", domain=domain, **fields)
    dtype = element.get("x", onnx.TensorProto.FLOAT)
    results = [helper.make_tensor_value_info(name, dtype, None) for name in outputs]
    graph = helper.make_graph(
        [node],
        "graph",
        [value for value in inputs if value.name not in constants],
        results,
        [onnx.numpy_helper.from_array(operands[name], name) for name in constants],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(domain, 1)], ir_version=8
    )


def outputs_of(op: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """Results of a `single_node_model` under the op's own output names."""
    return {output.name: results[f"{output.name}_out"] for output in opdef.REGISTRY[op].outputs}
