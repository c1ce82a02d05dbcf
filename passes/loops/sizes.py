"""Sizes known as values: what an int64 vector of sizes holds, number by number or name by name."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.passes.infer import attribute, constant_of, shape_of

Dims = tuple[Dim, ...]
# Longer chains of nodes than this do not come from computing a shape.
DEEPEST = 16
_PASSING = frozenset({"Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape"})


def sizes_of(value: ir.Value | None, depth: int = DEEPEST) -> Dims | None:
    """The elements of a vector (or the one of a scalar) that is computed from shapes.

    Returns:
        A number, a symbolic size's name or `None` for each element; `None` when not even their number is known.
    """
    array = constant_of(value)
    if array is not None:
        return tuple(int(x) for x in array.reshape(-1)) if array.dtype.kind in "iu" and array.size <= 64 else None
    node = value.producer() if value is not None else None
    if node is None or node.domain != "" or depth == 0:
        return None
    source = node.inputs[0] if node.inputs else None
    if node.op_type == "Shape":
        shape = shape_of(source)
        return None if shape is None else shape[attribute(node, "start", 0) : attribute(node, "end", None)]
    if node.op_type in _PASSING:
        return sizes_of(source, depth - 1)
    if node.op_type == "Concat":
        parts = [sizes_of(part, depth - 1) for part in node.inputs]
        return None if None in parts else tuple(dim for part in parts if part is not None for dim in part)
    if node.op_type == "Gather":
        return _gathered(node, depth)
    if node.op_type == "Slice":
        return _sliced(node, depth)
    return None


def _gathered(node: ir.Node, depth: int) -> Dims | None:
    sizes, indices = sizes_of(node.inputs[0], depth - 1), constant_of(node.inputs[1])
    if sizes is None or indices is None or any(not -len(sizes) <= index < len(sizes) for index in indices.reshape(-1)):
        return None
    return tuple(sizes[int(index)] for index in indices.reshape(-1))


def _sliced(node: ir.Node, depth: int) -> Dims | None:
    sizes = sizes_of(node.inputs[0], depth - 1)
    bounds = [constant_of(value) for value in (node.inputs[1], node.inputs[2])]
    given = node.inputs[4] if len(node.inputs) > 4 else None
    step = constant_of(given)
    if sizes is None or any(bound is None or bound.size != 1 for bound in bounds):
        return None
    if given is not None and (step is None or step.size != 1 or int(step.reshape(-1)[0]) != 1):
        return None
    start, end = (int(bound.reshape(-1)[0]) for bound in bounds if bound is not None)
    return sizes[start:end]
