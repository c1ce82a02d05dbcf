"""Types and shapes of operators that treat every element alike."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.inference.base import Inferred, infers
from lstm_lower.graph.values import Partial, broadcast


@infers(std.Arithmetic)
def _arithmetic(op: std.Arithmetic) -> Inferred:
    return [(op.dtype(), _broadcast(op))]


@infers(std.Logical)
def _logical(op: std.Logical) -> Inferred:
    return [(ir.DataType.BOOL, _broadcast(op))]


@infers(std.Where)
def _where(op: std.Where) -> Inferred:
    return [(op.dtype(1), _broadcast(op))]


def _broadcast(op: std.Elementwise) -> Partial | None:
    return broadcast(*[op.facts.shape(value) for value in op.node.inputs])


@infers(
    std.Unary,
    std.PRelu,
    std.AlongAxis,
    std.Cumulative,
    std.MeanVarianceNormalization,
    std.Scatter,
    std.ReverseSequence,
    std.Trilu,
)
def _same(op: std.Unary) -> Inferred:
    return [(op.facts.type(op.operand(0)), op.shape())]


@infers(std.Test)
def _test(op: std.Test) -> Inferred:
    return [(ir.DataType.BOOL, op.shape())]


@infers(std.Cast)
def _cast(op: std.Cast) -> Inferred:
    return [(op.to, op.shape())]


@infers(std.CastLike)
def _cast_like(op: std.CastLike) -> Inferred:
    return [(op.dtype(1), op.shape())]


@infers(std.Dropout)
def _dropout(op: std.Dropout) -> Inferred:
    return [(op.dtype(), op.shape()), (ir.DataType.BOOL, op.shape())]
