"""An operator that onnx defines as a function of others, written out as these."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir
from onnx import inliner

from lstm_lower.graph.copies import Copier
from lstm_lower.graph.expressions import Builder, Expr
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import declared_shape, stated
from lstm_lower.passes.opset.forms import form


def expanded(node: ir.Node, version: int, builder: Builder) -> list[Expr] | None:
    """Emits the nodes of the operator's function body, in their forms of the version.

    Returns:
        The outputs; `None` when the operator is no function, or its body asks for types that are not known.
    """
    schema = form(node.op_type, version)
    if schema is None or any(attribute.is_ref() for attribute in node.attributes.values()):
        return None
    model = _inlined(node, version)
    if model is None:
        return None
    graph = model.graph
    outer = [value for value in dict.fromkeys(node.inputs) if value is not None]
    _drop_invented_sizes(graph, [*outer, *node.outputs])
    for inner in all_nodes(graph):
        inner.name = inner.op_type
    copier = Copier(
        dict(zip(graph.inputs, outer, strict=True)),
        name=lambda name: builder.names.fresh(f"{builder.scope}/{name or node.op_type}"),
    )
    for emitted in copier.nodes(graph):
        builder.emitter.place(emitted)
    return [builder.wrap(copier.values[value] or value) for value in graph.outputs]


def _inlined(node: ir.Node, version: int) -> ir.Model | None:
    """A model of the function's body alone, with types inferred; its inputs are the node's, each once."""
    proto = ir.to_proto(node)
    _fill_in_defaults(proto, version)
    names: dict[str, str] = {}
    inputs = []
    for value in node.inputs:
        if value is None or value.name is None or value.name in names:
            continue
        if value.type is None:
            return None
        names[value.name] = f"in_{len(names)}"
        info = ir.serde.serialize_value(value)
        info.name = names[value.name]
        inputs.append(info)
    proto.input[:] = [names[name] if name else "" for name in proto.input]
    proto.output[:] = [f"out_{index}" for index in range(len(proto.output))]
    outputs = []
    for name, value in zip(proto.output, node.outputs, strict=True):
        info = ir.serde.serialize_value(value)
        info.name = name
        outputs.append(info)
    opset = onnx.helper.make_opsetid("", version)
    graph = onnx.helper.make_graph([proto], "body", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[opset])
    try:
        model = inliner.inline_selected_functions(model, [("", node.op_type)], inline_schema_functions=True)
        if any(inlined.op_type == node.op_type for inlined in model.graph.node):
            return None
        model = onnx.shape_inference.infer_shapes(model)
    except (RuntimeError, ValueError, onnx.shape_inference.InferenceError):
        return None
    return ir.from_proto(model)


def _fill_in_defaults(node: onnx.NodeProto, version: int) -> None:
    """Says the attributes that have a default; onnx's inliner does not read defaults from the schema."""
    schema = form(node.op_type, version)
    assert schema is not None
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _drop_invented_sizes(graph: ir.Graph, named: Sequence[ir.Value]) -> None:
    """Takes the names away that onnx's inference gave to open sizes: it gives the same ones in the next body."""
    known = {dim for value in named for dim in declared_shape(value) or () if isinstance(dim, str)}
    for node in all_nodes(graph):
        for value in node.outputs:
            shape = declared_shape(value)
            if shape is not None:
                value.shape = stated([dim if isinstance(dim, int) or dim in known else None for dim in shape])
