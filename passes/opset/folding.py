"""Values that follow from constants and static shapes: axes and sizes are often computed by a few nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from lstm_lower.passes.infer import constant_of, shape_of

# Their forms have not changed since 13, so that the version does not matter here.
_FOLDABLE = frozenset(
    [
        *("Add", "Cast", "Concat", "Div", "Gather", "Identity", "Mul", "Neg", "Range", "Reshape", "Slice", "Squeeze"),
        *("Sub", "Unsqueeze", "Where"),
    ]
)

_MAX_DEPTH = 16
_MAX_SIZE = 4096


def folded(value: ir.Value | None, depth: int = _MAX_DEPTH) -> np.ndarray[Any, Any] | None:
    """The array that a value always holds, or `None` when it is not known."""
    constant = constant_of(value)
    if constant is not None or value is None:
        return constant
    node = value.producer()
    if node is None or node.domain != "" or depth == 0:
        return None
    if node.op_type == "Shape":
        return _shape(node)
    if node.op_type not in _FOLDABLE or any(attribute.is_ref() for attribute in node.attributes.values()):
        return None
    operands = []
    for operand in node.inputs:
        array = folded(operand, depth - 1)
        if array is None or array.size > _MAX_SIZE:
            return None
        operands.append(array)
    evaluator = ReferenceEvaluator(ir.to_proto(node))
    names = [operand.name or "" for operand in node.inputs if operand is not None]
    results: list[Any] = list(evaluator.run(None, dict(zip(names, operands, strict=True))))
    return np.asarray(results[0])


def _shape(node: ir.Node) -> np.ndarray[Any, Any] | None:
    shape = shape_of(node.inputs[0])
    if shape is None or any(attribute.is_ref() for attribute in node.attributes.values()):
        return None
    bounds = {name: attribute.value for name, attribute in node.attributes.items()}
    sizes = shape[slice(bounds.get("start", 0), bounds.get("end"))]
    known = [size for size in sizes if isinstance(size, int)]
    return np.asarray(known, np.int64) if len(known) == len(sizes) else None
