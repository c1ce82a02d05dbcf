"""Fourier transforms of lengths for which onnxruntime's kernel is inexact, see `formulas.fourier`."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.fourier import transformed
from lstm_lower.passes.rewriting import decomposes

INT64 = ir.DataType.INT64


def is_inexact(op: std.Standard | None) -> bool:
    """Whether it is a transform in float32 of a length that may be no power of two, and that can be rewritten."""
    if isinstance(op, std.STFT):
        return _is_rough(_frame(op, op.facts)) and op.facts.dtype(op.signal) == ir.DataType.FLOAT
    if not isinstance(op, std.DFT) or op.axis is None:
        return False
    shape = op.facts.shape(op.data)
    if shape is None or op.facts.dtype(op.data) != ir.DataType.FLOAT or shape[-1] not in (1, 2):
        return False
    given = op.node.metadata_props.get(std.LENGTH) == std.POWER_OF_TWO
    return not given and _is_rough(shape[op.axis] if op.length is None else _number(op.length, op.facts))


def _frame(op: std.STFT, facts: std.Knowledge) -> object:
    """The length of a frame, as far as it is known."""
    if op.length is not None:
        return _number(op.length, facts)
    shape = None if op.window is None else facts.shape(op.window)
    return shape[0] if shape else None


def _number(length: ir.Value, facts: std.Knowledge) -> int | None:
    known = facts.constant(length)
    return None if known is None else int(known.reshape(-1)[0])


def _is_rough(length: object) -> bool:
    return not isinstance(length, int) or length & (length - 1) != 0


@decomposes(std.DFT)
def _dft(op: std.DFT, b: Builder) -> Expr | None:
    """As formulas of transforms have it."""
    x, axis = b.wrap(op.data), op.axis
    if axis is None or x.shape is None:
        return None
    known = _number(op.length, b.facts) if op.length is not None else None
    given = b.wrap(op.length).cast(INT64).reshape(1) if op.length is not None and known is None else known
    return transformed(x, axis, given, inverse=bool(op.inverse), onesided=bool(op.onesided))
