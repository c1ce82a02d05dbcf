"""An operator that onnx defines as a function of others, written out as these."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import captures
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.operator_versions import form
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import stated


def expanded(node: ir.Node, version: int, builder: Builder) -> list[Expr | None] | None:
    """Emits the nodes of the operator's function body, in their forms of the version.

    Returns:
        The outputs; `None` when the operator is no function, or its body asks for types that are not known.
    """
    schema = form(node.op_type, version)
    if schema is None or any(attribute.is_ref() for attribute in node.attributes.values()):
        return None
    # A body may take over the node's own graphs, in which names of the function would hide what they read from outside.
    outside = {value: _named(value, builder.names.fresh(f"{builder.scope}/{value.name}")) for value in captures(node)}
    proto = _body(Copier(outside).nodes([node])[0] if outside else node, node, schema, version, builder.facts)
    if proto is None:
        return None
    # A body need not make outputs that the node does not have.
    made = {name for inner in proto.node for name in inner.output} | set(proto.input)
    names = proto.output[: len(node.outputs)]
    proto.output[:] = [name for name in names if name in made]
    proto.input.extend(value.name or "" for value in outside.values())
    function = ir.serde.deserialize_function(proto)
    for inner in all_nodes(function):
        inner.name = inner.op_type
    defaults = [
        ir.serde.deserialize_attribute(found.default_value)
        for found in schema.attributes.values()
        if found.default_value.name
    ]
    missing = [None] * (len(function.inputs) - len(node.inputs) - len(outside))
    copier = Copier(
        dict(zip(function.inputs, [*node.inputs, *missing, *outside], strict=True)),
        attributes={attribute.name: attribute for attribute in defaults} | dict(node.attributes),
        name=lambda name: builder.names.fresh(f"{builder.scope}/{name or node.op_type}"),
    )
    emitted = copier.nodes(function)
    builder.place(*emitted)
    for value in (value for inner in emitted for value in inner.outputs):
        builder.declare(value)
    values = {value.name: copier.values[value] for value in function.outputs}
    results = [values.get(name) for name in names]
    return [None if value is None else builder.wrap(value) for value in results]


def _named(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, type=value.type, shape=value.shape)


def _body(written: ir.Node, node: ir.Node, schema: Any, version: int, facts: Facts) -> onnx.FunctionProto | None:
    """The newest body for the version, of a node as it is written for onnx."""
    body = b""
    # Bodies are written anew when one of the operators in them changes.
    if versions := [since for since in schema.function_opset_versions if since <= version]:
        body = schema.get_function_with_opset_version(max(versions))
    elif versions := [since for since in schema.context_dependent_function_opset_versions if since <= version]:
        types = [b"" if value is None else _type(value, facts) for value in node.inputs]
        if None not in types:
            proto = ir.to_proto(written).SerializeToString()
            body = schema.get_context_dependent_function_with_opset_version(max(versions), proto, types)
    return onnx.FunctionProto.FromString(body) if body else None


def _type(value: ir.Value, facts: Facts) -> bytes | None:
    """A value's type, with its shape; `None` when it is not known."""
    found, shape = facts.type(value), facts.shape(value)
    if found is None:
        return None
    known = ir.Value(name=value.name, type=found, shape=None if shape is None else stated(shape))
    serialized: bytes = ir.serde.serialize_value(known).type.SerializeToString()
    return serialized
