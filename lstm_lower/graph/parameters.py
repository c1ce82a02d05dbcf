"""The operands that the parameters of a body are given by the node that holds it."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.inference import Type
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.graph.values import Partial


class Parameters:
    """Knows, of every parameter of a body, the node that holds the body and the parameter's position."""

    def __init__(self) -> None:
        self._places: dict[ir.Value, tuple[ir.Node, int]] = {}

    def enter(self, nodes: Iterable[ir.Node]) -> None:
        """Takes up the parameters of nodes' bodies, and of those within them."""
        pending = [nodes]
        while pending:
            for node in pending.pop():
                for graph in subgraphs_of(node):
                    self._places.update((parameter, (node, index)) for index, parameter in enumerate(graph.inputs))
                    pending.append(graph)

    def forget(self, value: ir.Value) -> None:
        """Forgets a value that is no longer a parameter."""
        self._places.pop(value, None)

    def operand(self, value: ir.Value) -> ir.Value | None:
        """The operand at a parameter's position."""
        node, index = self._places.get(value, (None, 0))
        return node.inputs[index] if node is not None and index < len(node.inputs) else None

    def sequence(self, value: ir.Value, facts: std.Knowledge) -> ir.Value | None:
        """The sequence of which a Scan's parameter is one element."""
        node, index = self._places.get(value, (None, 0))
        view = facts.view(node)
        return self.operand(value) if isinstance(view, std.Scan) and index >= view.states else None

    def inferred(self, value: ir.Value, facts: std.Knowledge) -> tuple[Type, Partial | None]:
        """What follows for a parameter from what is handed to it."""
        node, index = self._places.get(value, (None, 0))
        view, outer = facts.view(node), self.operand(value)
        if isinstance(view, std.Loop) and index < 2:
            return ir.DataType.BOOL if index else ir.DataType.INT64, None
        if outer is None:
            return None, None
        if isinstance(view, std.Scan):
            shape: Partial | None = facts.shape(outer)
            if index >= view.states and shape:
                axis = view.input_axes[index - view.states] % len(shape)
                shape = (*shape[:axis], *shape[axis + 1 :])
            return facts.dtype(outer), shape
        if isinstance(view, std.Loop):
            # The shape may change from iteration to iteration.
            return facts.type(outer), None
        if isinstance(view, std.SequenceMap):
            type_ = facts.type(outer)
            return (type_.elem_type if isinstance(type_, ir.SequenceType) else type_), None
        return None, None
