"""Types and shapes of reductions and products."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.inference.base import Inferred, infers
from lstm_lower.graph.values import Dim, Partial, broadcast


@infers(std.LayerNormalization)
def _layer_normalization(op: std.LayerNormalization) -> Inferred:
    shape, axis = op.shape(), op.axis
    reduced = None
    if shape is not None and axis is not None:
        reduced = (*shape[:axis], *(1,) * (len(shape) - axis))
    stash = ir.DataType(op.attribute("stash_type", 1))
    return [(op.dtype(), shape), (stash, reduced), (stash, reduced)]


@infers(std.Reduction)
def _reduce(op: std.Reduction) -> Inferred:
    shape = op.shape()
    if shape is not None and 0 in shape and any(axis < 0 for axis in op.written_axes or ()):
        # onnxruntime reduces no axis of an empty operand that is counted from behind.
        return [(op.dtype(), None)]
    if op.is_total and not op.keepdims:
        return [(op.dtype(), ())]
    return [(op.dtype(), _reduced(shape, op.axes, keepdims=op.keepdims))]


def _reduced(shape: Partial | None, axes: tuple[int, ...] | None, *, keepdims: bool) -> Partial | None:
    if shape is None or axes is None:
        return None if shape is None or not keepdims else (None,) * len(shape)
    if keepdims:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


@infers(std.Arg)
def _arg(op: std.Arg) -> Inferred:
    axis = op.axis
    return [(ir.DataType.INT64, _reduced(op.shape(), None if axis is None else (axis,), keepdims=bool(op.keepdims)))]


@infers(std.MatMul)
def _matmul(op: std.MatMul) -> Inferred:
    a, b = op.shape(0), op.shape(1)
    if not a or not b:
        return [(op.dtype(), None)]
    batch = broadcast(a[:-2], b[:-2])
    # Of a vector the axis that a matrix has besides the inner one is missing.
    return [(op.dtype(), None if batch is None else (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())))]


@infers(std.Einsum)
def _einsum(op: std.Einsum) -> Inferred:
    equation = op.equation
    if equation is None:
        return [(op.dtype(), None)]
    sizes: dict[str, Dim | None] = {}
    for index, term in enumerate(equation.inputs):
        for label, dim in zip(term, op.shape(index) or [None] * len(term), strict=True):
            before = sizes.get(label, dim)
            both = broadcast((before,), (dim,))
            sizes[label] = None if both is None else both[0]
    return [(op.dtype(), tuple(sizes.get(label) for label in equation.output))]


@infers(std.Gemm)
def _gemm(op: std.Gemm) -> Inferred:
    a, b = op.shape(0), op.shape(1)
    rows = None if a is None else a[1 if op.trans_a else 0]
    columns = None if b is None else b[0 if op.trans_b else 1]
    return [(op.dtype(), (rows, columns))]
