"""Gradient clipping."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.elementary import sum_of_squares

_FLOAT = ir.DataType.FLOAT


def by_global_norm(gradients: Sequence[Expr], limit: float) -> list[Expr]:
    """Scales all gradients by one factor so that the norm of all their elements together is at most `limit`.

    Gradients below the limit are unchanged. The norm is computed in float32, or float64 where a gradient is float64.

    Source: Pascanu, Mikolov and Bengio, 2013, algorithm 1.
    """
    wide = ir.DataType.DOUBLE if any(gradient.dtype == ir.DataType.DOUBLE for gradient in gradients) else _FLOAT
    squares = [sum_of_squares(gradient.cast(wide)) for gradient in gradients]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    norm = total.sqrt()
    # A norm of zero must not divide; beyond the limit the maximum is the norm itself.
    factor = limit / norm.maximum(limit)
    return [gradient * factor.cast(gradient.dtype) for gradient in gradients]


def by_value(gradients: Sequence[Expr], limit: float) -> list[Expr]:
    """Limits every element to -limit .. limit."""
    return [gradient.maximum(-limit).minimum(limit) for gradient in gradients]
