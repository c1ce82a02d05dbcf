"""Which integers a graph accepts at an input: derived from how it uses them."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from lstm_lower import opdef, ops  # noqa: F401 (ops fills the registry)
from lstm_lower.dims import Dim
from lstm_lower.passes.infer import attribute, constant_of, shape_of

SizeOf = Callable[[Dim], int]
Range = tuple[int, int]

# Their first output holds values of their first input only.
_PRESERVING = frozenset(
    {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)


def integer_range(value: ir.Value, size_of: SizeOf) -> Range | None:
    """The half-open range `[low, high)` in which an integer input makes sense; `None` when the graph does not say.

    Args:
        value: a graph input, or a value that holds a graph input's elements.
        size_of: the size of a dimension, also of a symbolic one.
    """
    found = [range_ for node, index in value.uses() if (range_ := _range_of_use(node, index, size_of)) is not None]
    if not found:
        return None
    low, high = max(low for low, _ in found), min(high for _, high in found)
    return (low, max(high, low + 1))


def _range_of_use(node: ir.Node, index: int, size_of: SizeOf) -> Range | None:
    definition = opdef.definition(node.domain, node.op_type)
    if definition is not None:
        attributes = {name: attr.value for name, attr in node.attributes.items() if not attr.is_ref()}
        names = definition.operand_names(len(node.inputs), attributes)
        return _range_of_operand(node, names[index], names, size_of) if index < len(names) else None
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type in _PRESERVING and index == 0:
        return integer_range(node.outputs[0], size_of)
    if node.op_type in ("Gather", "GatherElements") and index == 1:
        return _below(_dim(node.inputs[0], attribute(node, "axis", 0)), size_of)
    if node.op_type == "OneHot" and index == 0:
        depth = constant_of(node.inputs[1])
        return None if depth is None else (0, int(depth.reshape(-1)[0]))
    return None


def _range_of_operand(node: ir.Node, name: str, names: list[str], size_of: SizeOf) -> Range | None:
    """The range of a composite op's operand, by the operand's name, which says the same in every op."""
    operands = dict(zip(names, node.inputs, strict=False))
    if name == "seq_len_max":
        return _length(operands.get("x"), 0, size_of)
    if name == "sequence_lengths":
        time_axis = 0 if attribute(node, "time_major", 1) else 1
        return _length(operands.get("input"), time_axis, size_of)
    if name == "labels" and node.op_type.startswith("Sparse"):
        return _below(_dim(operands.get("features"), -1), size_of)
    if name == "segment_ids":
        count = constant_of(operands.get("num_segments"))
        return None if count is None else (0, int(count.reshape(-1)[0]))
    return None


def _length(sequence: ir.Value | None, axis: int, size_of: SizeOf) -> Range | None:
    """1 up to all steps."""
    found = _below(_dim(sequence, axis), size_of)
    return None if found is None else (1, found[1] + 1)


def _below(dim: Dim, size_of: SizeOf) -> Range | None:
    return None if dim is None else (0, size_of(dim))


def _dim(value: ir.Value | None, axis: int) -> Dim:
    """One dimension; `None` when it, or even the rank, is unknown."""
    shape = shape_of(value)
    return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]
