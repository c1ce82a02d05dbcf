"""Which integers a graph accepts at an input: derived from how it uses them."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import bind_node, definition_of
from lstm_lower.graph.facts import Facts
from lstm_lower.opdef import Call

SizeOf = Callable[[Dim], int]
Range = tuple[int, int]


def integer_range(value: ir.Value, size_of: SizeOf, facts: Facts) -> Range | None:
    """The half-open range `[low, high)` in which an integer input makes sense; `None` when the graph does not say.

    Args:
        value: a graph input, or a value that holds a graph input's elements.
        size_of: the size of a dimension, also of a symbolic one.
        facts: what is known of the model's values.
    """
    uses = [_range_of_use(node, index, size_of, facts) for node, index in value.uses()]
    found = [range_ for range_ in uses if range_ is not None]
    if not found:
        return None
    low, high = max(low for low, _ in found), min(high for _, high in found)
    return (low, max(high, low + 1))


def _range_of_use(node: ir.Node, index: int, size_of: SizeOf, facts: Facts) -> Range | None:
    definition = definition_of(node)
    if definition is not None:
        return _range_of_operand(bind_node(node, definition, facts), node, index, size_of)
    view = facts.view(node)
    match view:
        case std.Gather() | std.GatherElements() if index == 1 and view.axis is not None:
            return _below(_dim(view.data, view.axis, facts), size_of)
        case std.OneHot() if index == 0:
            depth = view.constant(1)
            return None if depth is None else (0, int(depth.reshape(-1)[0]))
        case std.Moving() | std.Identity() | std.Cast() if index == 0:
            return integer_range(view.output, size_of, facts)
        case std.Where() if index > 0:
            # As where numbers that are refused, or ignored, are replaced by others.
            return integer_range(view.output, size_of, facts)
    return None


def _range_of_operand(call: Call, node: ir.Node, index: int, size_of: SizeOf) -> Range | None:
    """The range of a composite op's operand, as its definition declares it."""
    declared = call.op.input_slots(len(node.inputs), call.attributes)[index].operand
    if declared.counts is not None:
        steps = call.sizes.get(declared.counts)
        return None if steps is None else (1, size_of(steps) + 1)
    if declared.indexes is None:
        return None
    bound = call.operands.get(declared.indexes)
    if bound is not None:
        return None if bound.value is None else (0, int(bound.value))
    return _below(call.sizes.get(declared.indexes), size_of)


def _below(dim: Dim, size_of: SizeOf) -> Range | None:
    return None if dim is None else (0, size_of(dim))


def _dim(value: ir.Value | None, axis: int, facts: Facts) -> Dim | None:
    """One dimension; `None` when it, or even the rank, is unknown."""
    shape = facts.shape(value)
    return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]
