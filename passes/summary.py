"""A summary of a model: sizes, inputs and outputs, composite ops with their places, and what cannot be lowered."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower import opdef
from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import given_attributes
from lstm_lower.graph.dump import type_text
from lstm_lower.graph.form import node_label
from lstm_lower.graph.operator_versions import opset_of
from lstm_lower.graph.subgraphs import all_graphs
from lstm_lower.passes.composites import unsupported_nodes


@dataclasses.dataclass(frozen=True)
class Composite:
    """One composite node.

    Attributes:
        op: op type.
        node: node name, or its first output's.
        where: the graph that it is in: `main`, a function, or a branch or body of a node.
        operands: operand name -> type, as far as it is known.
        attributes: what the node gives.
    """

    op: str
    node: str
    where: str
    operands: dict[str, str]
    attributes: dict[str, object]


@dataclasses.dataclass(frozen=True)
class Summary:
    """The contents of a model.

    Attributes:
        opset: version of `ai.onnx`.
        domains: other operator sets.
        inputs: name -> type, of inputs without a default value.
        outputs: name -> type.
        nodes: number of nodes at every level.
        loops: number of Scan and Loop nodes.
        operators: op type -> number of nodes.
        weights: number of initializers, and of Constant nodes of a floating dtype that are no single number of rank 0,
            as which some exporters write weights.
        weight_bytes: their size.
        composites: the composite nodes.
        unsupported: one line for every node that cannot be lowered.
    """

    opset: int
    domains: dict[str, int]
    inputs: dict[str, str]
    outputs: dict[str, str]
    nodes: int
    loops: int
    operators: dict[str, int]
    weights: int
    weight_bytes: int
    composites: list[Composite]
    unsupported: list[str]


def summarize(model: ir.Model) -> Summary:
    """Collects what a model holds."""
    nodes = list(_nodes(model))
    initializers = [value.const_value for graph in all_graphs(model) for value in graph.initializers.values()]
    constants = [tensor for node, _ in nodes if std.Constant.matches(node) for tensor in _weight(node)]
    weights = [tensor for tensor in (*initializers, *constants) if tensor is not None]
    operators = collections.Counter(node.op_type for node, _ in nodes)
    return Summary(
        opset=opset_of(model),
        domains={domain: version for domain, version in model.opset_imports.items() if domain not in ("", "ai.onnx")},
        inputs={value.name or "": type_text(value) for value in model.graph.inputs if value.const_value is None},
        outputs={value.name or "": type_text(value) for value in model.graph.outputs},
        nodes=len(nodes),
        loops=operators[std.Scan.op_type] + operators[std.Loop.op_type],
        operators=dict(operators.most_common()),
        weights=len(initializers) + len(constants),
        weight_bytes=sum(map(_bytes, weights)),
        composites=[
            _composite(node, where, definition)
            for node, where in nodes
            if (definition := opdef.definition(node.domain, node.op_type)) is not None
        ],
        unsupported=[*map(str, unsupported_nodes(model))],
    )


def _weight(node: ir.Node) -> Iterator[ir.TensorProtocol]:
    """The tensor of a Constant node that may be a weight."""
    attribute = node.attributes.get("value")
    if attribute is not None and not attribute.is_ref() and attribute.type == ir.AttributeType.TENSOR:
        tensor: ir.TensorProtocol = attribute.value
        if _dtype(tensor).is_floating_point() and len(tensor.shape):
            yield tensor


def _bytes(tensor: ir.TensorProtocol) -> int:
    return 0 if _dtype(tensor) == ir.DataType.UNDEFINED else tensor.nbytes


def _dtype(tensor: ir.TensorProtocol) -> ir.DataType:
    try:
        return tensor.dtype
    except ValueError:
        # A type that ONNX does not know; the fault is told beside.
        return ir.DataType.UNDEFINED


def _nodes(model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
    yield from _walk(model.graph, "main")
    for function in model.functions.values():
        yield from _walk(function.graph, f"function {function.domain}.{function.name}")


def _walk(graph: ir.Graph, where: str) -> Iterator[tuple[ir.Node, str]]:
    for node in graph:
        yield node, where
        for name, attribute in node.attributes.items():
            place = f"{where} / {node.op_type} '{node_label(node)}' {name}"
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                yield from _walk(attribute.as_graph(), place)
            elif attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
                for inner in attribute.as_graphs():
                    yield from _walk(inner, place)


_TOLD = ("INT", "FLOAT", "STRING")


def _composite(node: ir.Node, where: str, definition: type[opdef.OpDef]) -> Composite:
    attributes = given_attributes(node)
    slots = definition.input_slots(len(node.inputs), attributes)
    operands = {str(s): type_text(value) for s, value in zip(slots, node.inputs, strict=False) if value is not None}
    kinds = {name: node.attributes[name].type.name for name in attributes}
    # No op of ours has tensors or graphs as attributes; a damaged model may.
    told = {name: value if kinds[name].rstrip("S") in _TOLD else kinds[name] for name, value in attributes.items()}
    return Composite(definition.op_type, node_label(node), where, operands, told)
