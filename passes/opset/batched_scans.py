"""Scan as it was in opset 8: of a whole batch, axis 0 of every operand, with time on axis 1.

Since opset 9 a Scan has no batch. The old one is a Scan over the batch, of one that is as the newer ones are.
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

# Since opset 9 scanned outputs may go backwards, too.
_RENAMED = {"directions": "scan_input_directions"}


def over_batches(model: ir.Model) -> None:
    """Writes every Scan of a model of opset 8 as one over the batch, in the form of opset 9.

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
        node.resize_inputs(len(operands))
        for position, value in enumerate(operands):
            node.replace_input_with(position, value)
        parameters = [
            ir.Value(name=names.fresh("element"), type=None if value is None else value.type) for value in operands
        ]
        results = [ir.Value(name=names.fresh("element"), type=value.type) for value in node.outputs]
        attributes = [
            ir.Attr(_RENAMED.get(name, name), attribute.type, attribute.value)
            for name, attribute in node.attributes.items()
        ]
        node.attributes.clear()
        inner = ir.Node("", std.Scan.op_type, parameters, attributes, outputs=results, name=names.fresh("sequence"))
        body = ir.Graph(parameters, results, nodes=[inner], name=names.fresh("batch"))
        for attribute in (ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", len(operands))):
            node.attributes[attribute.name] = attribute


def _scans(model: ir.Model) -> Iterator[ir.Node]:
    for graph in list(with_inner(model.graph)):
        for node in graph:
            if node.op_type == std.Scan.op_type and node.domain in STANDARD_DOMAINS:
                yield node
