"""What is known of an integer vector before the run: the sizes that went into it.

Gradient graphs are full of shape arithmetic: `Shape`, casts, slices and concatenations of sizes. Of a tensor whose
batch is symbolic every other size is known all the same, and a rule that knows a size emits less.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.passes.infer import attribute, constant_of, shape_of

# Longer vectors are data, not shapes.
_MAX_LENGTH = 64


def known_entries(value: ir.Value | None) -> tuple[Dim, ...] | None:
    """The entries of an integer vector (of a scalar: the one) as numbers, names of symbolic sizes, or `None`.

    Returns:
        `None` when not even the number of entries is known.
    """
    if value is None:
        return None
    constant = constant_of(value)
    if constant is not None:
        if constant.dtype.kind not in "iu" or constant.ndim > 1 or constant.size > _MAX_LENGTH:
            return None
        return tuple(int(entry) for entry in constant.reshape(-1))
    node = value.producer()
    found = _entries_of(node) if node is not None and node.domain == "" else None
    if found is not None:
        return found
    shape = shape_of(value)
    if shape is None or len(shape) > 1 or value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return None
    length = shape[0] if shape else 1
    return (None,) * length if isinstance(length, int) and length <= _MAX_LENGTH else None


def _entries_of(node: ir.Node) -> tuple[Dim, ...] | None:
    operands = node.inputs
    match node.op_type:
        case "Shape":
            shape = shape_of(operands[0])
            bounds = slice(attribute(node, "start", 0), attribute(node, "end", None))
            return None if shape is None else shape[bounds]
        case "Cast" | "Identity" | "Squeeze" | "Unsqueeze":
            return known_entries(operands[0])
        case "Concat":
            parts = [known_entries(operand) for operand in operands]
            known = [part for part in parts if part is not None]
            return tuple(entry for part in known for entry in part) if len(known) == len(parts) else None
        case "Gather":
            source, indices = known_entries(operands[0]), constant_of(operands[1])
            if source is None or indices is None or indices.ndim > 1:
                return None
            return tuple(source[int(index)] for index in indices.reshape(-1))
        case "Slice":
            source = known_entries(operands[0])
            bounds_given = [constant_of(operand) for operand in operands[1:3]]
            step = constant_of(operands[4]) if len(operands) > 4 else None
            if source is None or any(bound is None for bound in bounds_given):
                return None
            if len(operands) > 4 and step is None:
                return None
            start, end = (int(bound.reshape(-1)[0]) for bound in bounds_given if bound is not None)
            stride = 1 if step is None else int(step.reshape(-1)[0])
            return source[start:end:stride] if stride > 0 else None
        case _:
            return None
