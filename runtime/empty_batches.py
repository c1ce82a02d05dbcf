"""Open sizes that must not be zero: onnxruntime's LSTM and GRU end the process on an empty batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes


def batch_sizes(model: ir.Model) -> frozenset[str]:
    """Names of the open sizes that are the batch of an LSTM or a GRU anywhere in a model."""
    nodes = [node for node in all_nodes(model.graph) if std.LSTM.matches(node) or std.GRU.matches(node)]
    if not nodes:
        return frozenset()
    facts = Facts.of(model)
    found = set()
    for node in nodes:
        layout = node.attributes.get("layout")
        shape = facts.shape(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if shape is not None and len(shape) > 1:
            found.add(shape[0 if layout is not None and layout.as_int() else 1])
    return frozenset(size for size in found if isinstance(size, str))


def check_batches(named: frozenset[str], arrays: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """Refuses feeds with an empty batch.

    Raises:
        InvalidInputError: one has it.
    """
    for name, array in arrays.items():
        for size, given in zip(declared[name].shape or (), array.shape, strict=False):
            if given == 0 and size in named:
                raise InvalidInputError(
                    f"input '{name}' requires a batch of one or more ({size}), got shape {list(array.shape)}; "
                    "onnxruntime's LSTM and GRU end the process on an empty one"
                )
