"""Which tensors hold one value everywhere, zeros and ones in all their disguises: the facet `uniforms`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std

# What is larger is not looked at; in what is no one value, the last entry or the first ones differ.
LARGEST, FIRST = 1 << 24, 16

# A rule tells the value that a node's output holds everywhere, as it follows from the operands.
uniforms: std.Facet[Callable[[Any], float | None]] = std.Facet("uniformity")


def uniform_constant(value: ir.Value, facts: std.Knowledge) -> float | None:
    """The value that a constant holds everywhere."""
    array = facts.constant(value) if value.const_value is None or facts.elements(value) <= LARGEST else None
    if array is None or not 0 < array.size <= LARGEST or array.dtype.kind not in "iuf":
        return None
    flat = array.reshape(-1)
    first = flat[0]
    if flat[-1] != first or not (flat[:FIRST] == first).all():
        return None
    return _number(first) if (flat == first).all() else None


@uniforms(std.Constant)
def _constant(op: std.Constant) -> float | None:
    return uniform_constant(op.output, op.facts)


@uniforms(std.ConstantOfShape)
def _constant_of_shape(op: std.ConstantOfShape) -> float | None:
    return 0.0 if op.fill is None else _number(op.fill.numpy().reshape(-1)[0])


@uniforms(std.Moving, std.Identity)
def _moving(op: std.Moving) -> float | None:
    return op.facts.uniform(op.inputs[0])


@uniforms(std.Cast)
def _cast(op: std.Cast) -> float | None:
    inner = op.facts.uniform(op.inputs[0])
    return inner if inner in (0.0, 1.0) or (inner == -1.0 and op.to.is_signed()) else None


@uniforms(std.Concat)
def _concat(op: std.Concat) -> float | None:
    values = {op.facts.uniform(x) for x in op.inputs}
    return values.pop() if len(values) == 1 else None


@uniforms(std.Add, std.Sub)
def _sum(op: std.Add | std.Sub) -> float | None:
    return _computed(op, np.add if isinstance(op, std.Add) else np.subtract)


@uniforms(std.MatMul)
def _matrix_product(op: std.MatMul) -> float | None:
    shape = op.shape(1)
    # A sum of nothing; onnxruntime leaves such a product's memory as it was where it fuses a Transpose into it.
    return 0.0 if shape and shape[max(len(shape) - 2, 0)] == 0 else _product(op)


@uniforms(std.Mul, std.Gemm)
def _product(op: std.Standard) -> float | None:
    a, b, *rest = map(op.facts.uniform, op.node.inputs)
    if a is None and b is None:
        return None
    # Zero times infinity is NaN.
    if 0.0 in (a, b) and not rest and all(map(op.facts.finite, op.node.inputs)):
        return 0.0
    return _computed(op, np.multiply) if isinstance(op, std.Mul) else None


@uniforms(std.ReduceSum, std.Neg)
def _zero(op: std.Standard) -> float | None:
    return 0.0 if op.facts.uniform(op.inputs[0]) == 0.0 else None


@uniforms(std.ReduceMean)
def _mean(op: std.ReduceMean) -> float | None:
    # The mean of nothing is NaN.
    shape = op.shape()
    some = shape is not None and all(isinstance(dim, int) and dim > 0 for dim in shape)
    return 0.0 if some and op.facts.uniform(op.data) == 0.0 else None


@uniforms(std.Pad)
def _pad(op: std.Pad) -> float | None:
    inner = op.facts.uniform(op.data)
    added = 0.0 if op.value is None else op.facts.uniform(op.value)
    return inner if op.mode == "constant" and inner == added else None


def _computed(op: std.Standard, function: np.ufunc) -> float | None:
    """The result of two values in the operator's own type: it wraps, is rounded or becomes infinite."""
    a, b = map(op.facts.uniform, op.inputs)
    dtype = None if a is None or b is None else op.facts.dtype(op.output)
    if dtype is None:
        return None
    with np.errstate(all="ignore"):
        return _number(function(np.array(a).astype(dtype.numpy()), np.array(b).astype(dtype.numpy())))


def _number(entry: Any) -> float | None:
    """An entry of an array; None for a complex number, and for an integer that is no double."""
    if entry.dtype.kind == "c":
        return None
    return float(entry) if entry.dtype.kind not in "iu" or int(float(entry)) == int(entry) else None
