"""Operators that numpy computes as onnxruntime does, without a session, which takes longer than most of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]

# What onnxruntime has kernels for, whichever of these operators it is.
DTYPES = ("float32", "float64", "int32", "int64")


def _shape(data: Array, start: int = 0, end: int | None = None) -> Array:
    return np.array(data.shape[start:end], np.int64)


def _constant_of_shape(shape: Array, value: onnx.TensorProto | None = None) -> Array:
    filled = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    return np.full(shape, filled[0], filled.dtype)  # refuses negative sizes


def _expand(data: Array, shape: Array) -> Array:
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape.tolist()))).copy()


# Called with the operands and, by name, the attributes.
QUICK: dict[str, Callable[..., Array]] = {
    "Identity": lambda data: data.copy(),
    "Shape": _shape,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Transpose": lambda data, perm=None: data.transpose(perm).copy(),
    "Gather": lambda data, indices, axis=0: np.take(data, indices, axis),
}


def computed(node: onnx.NodeProto, samples: Mapping[str, Any]) -> list[Any] | None:
    """What a node computes, if numpy says so: `None` for other operators and types, and where there is an error."""
    quick = QUICK.get(node.op_type)
    if quick is None or node.domain or len(node.output) != 1:
        return None
    operands = [samples.get(name) for name in node.input]
    if any(not isinstance(value, np.ndarray) or value.dtype.name not in DTYPES for value in operands):
        return None
    fields = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(quick(*operands, **fields))]
    except (ValueError, IndexError):
        return None
