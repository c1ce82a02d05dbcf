"""Composite nodes and what they are bound to: each node's use of its op, verified once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Protocol

import onnx_ir as ir

from lstm_lower.dtypes import is_integer
from lstm_lower.errors import InvalidModelError, LstmLowerError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.form import node_label
from lstm_lower.graph.inference import Inferred
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.opdef import Arranged, Call, OpDef, TensorInfo, definition

# Larger values are data, and would take longer to compare than to bind again.
_MAX_VALUE_SIZE = 64


class Binder(std.Knowledge, Protocol):
    """Facts about values, and memos of what follows for composite nodes.

    Attributes:
        infos: what composite nodes ask of their operands.
        calls: their uses of their ops, by all that these depend on.
    """

    infos: dict[ir.Value, TensorInfo]
    calls: dict[Hashable, Call]


def composite_nodes(graph: ir.Graph | ir.Function) -> Iterator[tuple[ir.Node, type[OpDef]]]:
    """The nodes of a graph and its subgraphs that have a definition, with it."""
    for node in all_nodes(graph):
        # Most nodes are ONNX's own.
        if node.domain and (definition := definition_of(node)) is not None:
            yield node, definition


def definition_of(node: ir.Node) -> type[OpDef] | None:
    """The definition of a composite node; `None` for any other."""
    return definition(node.domain, node.op_type)


def given_attributes(node: ir.Node) -> dict[str, Any]:
    """Attributes by name, without those that stand for an attribute of the function around the node."""
    return {name: attribute.value for name, attribute in node.attributes.items() if not attribute.is_ref()}


def bind_node(node: ir.Node, op: type[OpDef], facts: Binder) -> Call:
    """Verifies a composite node against its definition.

    Nodes of which the same is known share one call, which therefore must not be changed: an unrolled network holds
        thousands of nodes that are alike. A call stays the same as long as nothing new is known of its operands.

    Args:
        node: the node.
        op: its definition.
        facts: what is known of the model's values.

    Raises:
        InvalidModelError: an operand or attribute does not fit.
    """
    infos = [_info(value, facts) for value in node.inputs]
    key = _key(node, op, infos)
    call = facts.calls.get(key) if key is not None else None
    if call is None:
        call = _bind(node, op, infos)
        if key is not None:
            facts.calls[key] = call
    if len(node.outputs) > len(call.outputs):
        raise _misfit(node, "the node", f"at most {len(call.outputs)} outputs", len(node.outputs))
    return call


def inferred(node: ir.Node, facts: Binder) -> Inferred | None:
    """Dtypes and shapes of a composite node's outputs; nothing where it does not fit its definition.

    The error for such a node is the verifier's.
    """
    op = definition_of(node)
    if op is None:
        return None
    try:
        return [(info.dtype, info.shape) for info in bind_node(node, op, facts).outputs]
    except LstmLowerError:
        return None


def _bind(node: ir.Node, op: type[OpDef], infos: list[TensorInfo | None]) -> Call:
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            got = f"a reference to attribute {attribute.ref_attr_name}"
            raise _misfit(node, f"attribute {name}", "a value", got)
    attributes = given_attributes(node)
    places = len(op.input_slots(len(infos), attributes))
    if len(infos) > places:
        raise _misfit(node, "the node", f"at most {places} inputs", len(infos))
    return op.bind(node_label(node), Arranged.of(op.inputs, infos, attributes), attributes)


def _info(value: ir.Value | None, facts: Binder) -> TensorInfo | None:
    if value is None or value in facts.infos:
        return None if value is None else facts.infos[value]
    dtype = facts.dtype(value)
    constant = facts.constant(value) if dtype is None or is_integer(dtype) else None
    integers = constant is not None and constant.dtype.kind in "iu"
    facts.infos[value] = info = TensorInfo(dtype, facts.shape(value), constant if integers else None)
    return info


def _key(node: ir.Node, op: type[OpDef], infos: list[TensorInfo | None]) -> Hashable:
    """All that the call depends on; `None` where that is too much to compare."""
    operands: list[Hashable] = []
    for info in infos:
        if info is None:
            operands.append(None)
        elif info.value is None:
            operands.append((info.dtype, info.shape, None))
        elif info.value.size <= _MAX_VALUE_SIZE:
            operands.append((info.dtype, info.shape, (info.value.shape, info.value.tobytes())))
        else:
            return None
    attributes = tuple((name, repr(attribute.value)) for name, attribute in node.attributes.items())
    return op, attributes, tuple(operands)


def _misfit(node: ir.Node, operand: str, what: str, got: object) -> InvalidModelError:
    return InvalidModelError(requires(node.op_type, node_label(node), operand, what, got))
