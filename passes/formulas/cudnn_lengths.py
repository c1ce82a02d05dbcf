"""Ragged sequences: which steps lie within their sequence."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Dim
from lstm_lower.passes.formulas.sizes import up_to


def running_steps(lengths: Expr, steps: int | Expr) -> Expr:
    """`[T, B, 1]`: t < length.

    At run time, lengths beyond T count as T and negative ones as 0.

    Args:
        lengths: `[B]` int32.
        steps: T.
    """
    b = lengths.builder
    if isinstance(steps, int):
        times = b.constant(list(range(steps)), ir.DataType.INT32)
    else:
        times = up_to(b, steps.cast(ir.DataType.INT32))
    return times.unsqueeze(1, 2) < lengths.unsqueeze(0, 2)


def all_full(lengths: ir.Value | None, steps: Dim | None, facts: Facts) -> bool:
    """Whether lengths are a constant of T, or filled with one, as Keras does for sequences without a mask."""
    if lengths is None or steps is None:
        return False
    constant = facts.constant(lengths)
    return bool((constant == steps).all()) if constant is not None else filled_with(lengths, facts) == steps


def filled_with(value: ir.Value | None, facts: Facts) -> Dim | None:
    """The one entry that an integer tensor is filled with, a number or a size; `None` when unknown."""
    while value is not None:
        number, entries = facts.uniform(value), facts.entries(value)
        if number is not None:
            return int(number)
        if entries and all(entry == entries[0] for entry in entries):
            return entries[0]
        view = facts.maker(value)
        value = view.operand(0) if isinstance(view, std.Moving | std.Identity | std.Cast) else None
    return None
