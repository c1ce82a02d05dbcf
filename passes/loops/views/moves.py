"""Chains of nodes in a loop's body that only rearrange a value, and the same chains outside of it."""

from __future__ import annotations

from collections.abc import Container, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import behind_identity


def moves_from(
    sources: Container[ir.Value], value: ir.Value, dependence: Dependence
) -> tuple[ir.Value, list[ir.Node]] | None:
    """Which of some values a value of the body is, rearranged, and the nodes that do so, the first of them first.

    Returns:
        `None` where it is none of them, or where a node is told how by what is not there outside the loop.
    """
    body, moves = dependence.loop.body, list[ir.Node]()
    while (value := behind_identity(value)) not in sources:
        node = value.producer()
        if node is None or node.graph is not body or not std.Moving.matches(node) or len(node.outputs) != 1:
            return None
        data, *layout = node.inputs
        if data is None or any(not _is_outside(operand, dependence) for operand in layout):
            return None
        moves.append(node)
        value = data
    return value, moves[::-1]


def moved(e: Builder, value: ir.Value, moves: Sequence[ir.Node]) -> ir.Value:
    """A value rearranged as nodes of a body do."""
    for node in moves:
        value = e.again(node, [value, *node.inputs[1:]]).outputs[0]
    return value


def _is_outside(value: ir.Value | None, dependence: Dependence) -> bool:
    producer = None if value is None else value.producer()
    made_here = producer is not None and producer.graph is dependence.loop.body
    return dependence.level(value) == Level.INVARIANT and not made_here
