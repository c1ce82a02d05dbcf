"""Which integers a graph accepts at an input: derived from how it uses them."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from lstm_lower import opdef, ops  # noqa: F401 (ops fills the registry)
from lstm_lower.dims import Dim
from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts

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
    definition = opdef.definition(node.domain, node.op_type)
    if definition is not None:
        attributes = {name: attr.value for name, attr in node.attributes.items() if not attr.is_ref()}
        names = definition.operand_names(len(node.inputs), attributes)
        return _range_of_operand(node, names[index], names, size_of, facts) if index < len(names) else None
    view = facts.view(node)
    match view:
        case std.Gather() | std.GatherElements() if index == 1 and view.axis is not None:
            return _below(_dim(view.data, view.axis, facts), size_of)
        case std.OneHot() if index == 0:
            depth = view.constant(1)
            return None if depth is None else (0, int(depth.reshape(-1)[0]))
        case std.Moving() | std.Identity() | std.Cast() if index == 0:
            return integer_range(view.output, size_of, facts)
    return None


def _range_of_operand(node: ir.Node, name: str, names: list[str], size_of: SizeOf, facts: Facts) -> Range | None:
    """The range of a composite op's operand, by the operand's name, which says the same in every op."""
    operands = dict(zip(names, node.inputs, strict=False))
    if name == "seq_len_max":
        return _length(operands.get("x"), 0, size_of, facts)
    if name == "sequence_lengths":
        time_major = node.attributes.get("time_major")
        time_axis = 0 if time_major is None or time_major.value else 1
        return _length(operands.get("input"), time_axis, size_of, facts)
    if name == "labels" and node.op_type.startswith("Sparse"):
        return _below(_dim(operands.get("features"), -1, facts), size_of)
    if name == "segment_ids":
        count = facts.constant(operands.get("num_segments"))
        return None if count is None else (0, int(count.reshape(-1)[0]))
    return None


def _length(sequence: ir.Value | None, axis: int, size_of: SizeOf, facts: Facts) -> Range | None:
    """1 up to all steps."""
    found = _below(_dim(sequence, axis, facts), size_of)
    return None if found is None else (1, found[1] + 1)


def _below(dim: Dim, size_of: SizeOf) -> Range | None:
    return None if dim is None else (0, size_of(dim))


def _dim(value: ir.Value | None, axis: int, facts: Facts) -> Dim | None:
    """One dimension; `None` when it, or even the rank, is unknown."""
    shape = facts.shape(value)
    return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]
