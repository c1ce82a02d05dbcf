"""Models of cuDNN nodes for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from lstm_lower import opdef
from tests.support.cudnn_cases import FORWARD, Case
from tests.support.models import DOMAIN

Array = np.ndarray[Any, Any]


def attributes_of(op: str, case: Case, **more: Any) -> dict[str, Any]:
    """The case's attributes that an op has."""
    known = {attribute.name for attribute in opdef.REGISTRY[op].attributes}
    given = {**{name: value for name, value in case.attributes.items() if name in known}, **more}
    return {name: int(value) if isinstance(value, bool) else value for name, value in given.items()}


def _info(name: str, value: Any, symbols: Mapping[str, Sequence[str | int]]) -> onnx.ValueInfoProto:
    array = np.asarray(value)
    shape = symbols.get(name, array.shape)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(shape))


def node_model(
    op: str,
    operands: Mapping[str, Any],
    attributes: Mapping[str, Any],
    *,
    outputs: Sequence[str] | None = None,
    constants: Sequence[str] = (),
    symbols: Mapping[str, Sequence[str | int]] | None = None,
) -> onnx.ModelProto:
    """One node whose operands are the graph's inputs (or constants) and whose chosen outputs are the graph's."""
    definition = opdef.REGISTRY[op]
    names = [operand.name for operand in definition.inputs]
    wanted = [output.name for output in definition.outputs] if outputs is None else outputs
    made = [output.name if output.name in wanted else "" for output in definition.outputs]
    node = helper.make_node(op, names, made, name="rnn", domain=DOMAIN, **attributes)
    return _model([node], {name: operands[name] for name in names}, wanted, constants, symbols or {})


def training_model(
    case: Case,
    operands: Mapping[str, Any],
    *,
    constants: Sequence[str] = (),
    symbols: Mapping[str, Sequence[str | int]] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """CudnnRNNV3 and the CudnnRNNBackpropV3 of it; gradients of the outputs are inputs of the graph."""
    forward, backward = (opdef.REGISTRY[op] for op in ("CudnnRNNV3", "CudnnRNNBackpropV3"))
    made = [output.name for output in forward.outputs]
    grads = [output.name for output in backward.outputs]
    nodes = [
        helper.make_node(
            op.op_type, inputs, outputs, name=name, domain=DOMAIN, **attributes_of(op.op_type, case, **attributes)
        )
        for op, name, inputs, outputs in (
            (forward, "forward", list(FORWARD), made),
            (backward, "backward", [operand.name for operand in backward.inputs], grads),
        )
    ]
    fed = [operand.name for operand in backward.inputs if operand.name not in made]
    return _model(nodes, {name: operands[name] for name in fed}, [*made, *grads], constants, symbols or {})


def _model(
    nodes: list[onnx.NodeProto],
    operands: Mapping[str, Any],
    outputs: Sequence[str],
    constants: Sequence[str],
    symbols: Mapping[str, Sequence[str | int]],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [_info(name, value, symbols) for name, value in operands.items() if name not in constants],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(operands[name]), name) for name in constants],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def nodes_of(graph: onnx.GraphProto, op_type: str) -> list[onnx.NodeProto]:
    """Nodes of a type, not those of subgraphs."""
    return [node for node in graph.node if node.op_type == op_type]


def body_of(scan: onnx.NodeProto) -> onnx.GraphProto:
    """A Scan's body."""
    return next(attribute.g for attribute in scan.attribute if attribute.name == "body")
