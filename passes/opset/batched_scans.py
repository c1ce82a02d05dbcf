"""Scan as it was in opset 8: of a whole batch, axis 0 of every operand, with time on axis 1.

Since opset 9 a Scan has no batch. onnx's version converter moves the old one there by taking the batch's axis away from
what is declared of its operands, which they keep all the same: another model. Such a Scan is a Scan over the batch, of
one that is as the newer ones are. `shield` keeps the converter from other values' shapes; `over_batches` writes that.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.form import node_label
from lstm_lower.graph.names import Names
from lstm_lower.graph.structure import STANDARD_DOMAINS
from lstm_lower.graph.subgraphs import with_inner


def shield(model: ir.Model) -> None:
    """Gives every Scan of a model of opset 8 operands and results of its own, for the converter to describe wrongly.

    Raises:
        UnsupportedOpError: a Scan has sequences of several lengths.
    """
    names = Names.of(model)
    for node in list(_scans(model)):
        lengths, *operands = node.inputs
        if lengths is not None:
            raise UnsupportedOpError(
                requires(
                    node.op_type,
                    node_label(node),
                    "sequence_lens",
                    "no operand, all sequences of one length (pad them, or export the model with opset 9 or newer)",
                    f"'{lengths.name}'",
                )
            )
        graph = node.graph
        assert graph is not None
        for position, value in enumerate(operands, 1):
            copy = _copied(value, names)
            graph.insert_before(node, copy)
            node.replace_input_with(position, copy.outputs[0])
        for value in node.outputs:
            copy = _copied(None, names)
            (result,) = copy.outputs
            value.replace_all_uses_with(result, replace_graph_outputs=True)
            copy.replace_input_with(0, value)
            result.name, value.name = value.name, result.name
            result.type, result.shape = value.type, value.shape
            graph.insert_after(node, copy)


def over_batches(model: ir.Model) -> None:
    """Writes every Scan of a model that was shielded and then converted from opset 8 as one over the batch."""
    names = Names.of(model)
    for node in list(_scans(model)):
        own = [value for value in [*node.inputs, *node.outputs] if value is not None]
        for value in own:
            value.shape = None
        fed, made = own[: len(node.inputs)], own[len(node.inputs) :]
        parameters = [ir.Value(name=names.fresh("element"), type=value.type) for value in fed]
        results = [ir.Value(name=names.fresh("element"), type=value.type) for value in made]
        attributes = list(node.attributes.values())
        node.attributes.clear()
        inner = ir.Node("", std.Scan.op_type, parameters, attributes, outputs=results, name=names.fresh("sequence"))
        body = ir.Graph(parameters, results, nodes=[inner], name=names.fresh("batch"))
        for attribute in (ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", len(fed))):
            node.attributes[attribute.name] = attribute


def _scans(model: ir.Model) -> Iterator[ir.Node]:
    for graph in list(with_inner(model.graph)):
        for node in graph:
            if node.op_type == std.Scan.op_type and node.domain in STANDARD_DOMAINS:
                yield node


def _copied(value: ir.Value | None, names: Names) -> ir.Node:
    """A node of its own for a value."""
    name = names.fresh("batched")
    return ir.Node("", std.Identity.op_type, [value], outputs=[ir.Value(name=name)], name=name)
