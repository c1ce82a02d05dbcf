"""Softmax, LogSoftmax and Hardmax as they were before opset 13: of all axes from one on, as if these were one.

onnx's version converter writes the first two out as several nodes, under names that others have in graphs within, and
fails where a body or a branch reads the result; Hardmax it leaves as it is, so that it means one axis. Written out
before, they mean the same in both.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.names import Names
from lstm_lower.graph.structure import STANDARD_DOMAINS
from lstm_lower.graph.subgraphs import all_nodes

_OPS = {kind.op_type for kind in (std.Softmax, std.LogSoftmax, std.Hardmax)}


def flatten(model: ir.Model) -> None:
    """Writes those of a model older than opset 13 as ones along the second axis of a matrix.

    Those along the last axis stay.
    """
    facts, names = Facts.of(model), Names.of(model)
    for node in list(all_nodes(model.graph)):
        if node.op_type not in _OPS or node.domain not in STANDARD_DOMAINS:
            continue
        data, result = node.inputs[0], node.outputs[0]
        axis, rank = node.attributes.get_int("axis", 1), facts.rank(data)
        if 0 in (facts.shape(data) or ()):
            # Of nothing: a Reshape would take the size of 0 for a copy of the matrix's, which has two.
            node.op_type = std.Identity.op_type
            node.attributes.clear()
        elif axis != -1 and (rank is None or axis % max(rank, 1) != rank - 1):
            _write(node, data, result, axis, names)
        else:
            # What is left out is another axis since, and in a body the converter does not know which is the last.
            node.attributes["axis"] = ir.AttrInt64("axis", -1)


def _write(node: ir.Node, data: ir.Value | None, result: ir.Value, axis: int, names: Names) -> None:
    graph = node.graph
    assert graph is not None

    def made(op: type[std.Standard], *operands: ir.Value | None, **attributes: int) -> ir.Node:
        given = [ir.AttrInt64(key, number) for key, number in attributes.items()]
        name = names.fresh(f"{node.name or node.op_type}/{op.op_type}")
        return ir.Node("", op.op_type, operands, given, outputs=[ir.Value(name=name, type=result.type)], name=name)

    shape, matrix = made(std.Shape, data), made(std.Flatten, data, axis=axis)
    shape.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    graph.insert_before(node, [shape, matrix])
    node.replace_input_with(0, matrix.outputs[0])
    node.attributes["axis"] = ir.AttrInt64("axis", -1)
    again = made(std.Reshape, result, shape.outputs[0])
    (whole,) = again.outputs
    result.replace_all_uses_with(whole, replace_graph_outputs=True)
    again.replace_input_with(0, result)
    whole.name, result.name = result.name, whole.name
    whole.shape, result.shape = result.shape, None
    graph.insert_after(node, again)
