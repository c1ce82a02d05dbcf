"""The values that must be known before a fact of another value can be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.folding import OF_SHAPES, folds
from lstm_lower.graph.parameters import Parameters
from lstm_lower.graph.subgraphs import subgraphs_of


class Knowledge(std.Knowledge, Protocol):
    """What is asked here."""

    @property
    def parameters(self) -> Parameters: ...


def neighbours(facts: Knowledge, value: ir.Value) -> Iterable[ir.Value]:
    """What type and shape of a value may follow from."""
    node = value.producer()
    if node is None:
        outer = facts.parameters.operand(value)
        return () if outer is None else (outer,)
    if not node.attributes.data:
        return [x for x in node.inputs if x is not None]
    return [*(x for x in node.inputs if x is not None), *(x for graph in subgraphs_of(node) for x in graph.outputs)]


def operands(facts: Knowledge, value: ir.Value) -> Iterable[ir.Value]:
    """What a value is computed from; a Scan's parameter from its sequence."""
    node = value.producer()
    if node is not None:
        return [x for x in node.inputs if x is not None]
    sequence = facts.parameters.sequence(value, facts)
    return () if sequence is None else (sequence,)


def small_operands(facts: Knowledge, value: ir.Value) -> Iterable[ir.Value]:
    """Operands whose contents tell that of a value: none where no rule would look at them."""
    view = None if value.const_value is not None else facts.maker(value)
    if view is None or len(view.node.outputs) != 1 or isinstance(view, OF_SHAPES) or folds.of(type(view)) is None:
        return ()
    return [x for x in view.node.inputs if x is not None]
