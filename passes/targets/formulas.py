"""Operators written otherwise for a target that computes them in fewer digits, or wrongly at the edges."""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr

FLOAT, DOUBLE, INT64 = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64


def in_float64(view: std.Unary, b: Builder) -> list[Expr]:
    """The operator in float64, which a target leaves to the processor."""
    x = b.wrap(view.data)
    return [b.op(type(view), x.cast(DOUBLE)).cast(x.dtype)]


def largest_in_float64(view: std.MaxPool, b: Builder) -> list[Expr]:
    """The same of windows: the largest numbers, and where they stand."""
    x = b.wrap(view.data)
    attributes = {name: attribute.value for name, attribute in view.node.attributes.items()}
    values, places = b.ops(std.MaxPool, x.cast(DOUBLE), outputs=2, **attributes)
    return [values.cast(x.dtype), places]


def tangent(view: std.Tan, b: Builder) -> list[Expr]:
    """The sine over the cosine, in float64; onnxruntime has no Tan in it."""
    x = b.wrap(view.data)
    wide = x.cast(DOUBLE)
    return [(b.op(std.Sin, wide) / b.op(std.Cos, wide)).cast(x.dtype)]


def arc_cosine(view: std.Acos, b: Builder) -> list[Expr]:
    """What the arc sine leaves of a right angle."""
    return [math.pi / 2 - b.op(std.Asin, b.wrap(view.data))]


def power(view: std.Pow, b: Builder) -> list[Expr]:
    """A power with an exponent of another type, for which the processor alone has a kernel.

    An int64 from which the exponent was cast, such as the number of a step, serves where there is one: a runtime may
    have no float64.
    """
    base, exponent = view.node.inputs
    made = b.facts.maker(exponent)
    origin = made.data if isinstance(made, std.Cast) and b.facts.dtype(made.data) is INT64 else None
    assert base is not None
    assert exponent is not None
    wide = b.wrap(exponent).cast(DOUBLE) if origin is None else b.wrap(origin)
    return [b.wrap(base) ** wide]


def logarithm(view: std.Log, b: Builder) -> list[Expr]:
    """That of numbers above zero; of zero it is minus infinity, of all else no number."""
    x = b.wrap(view.data)
    above = x > 0.0
    edge = b.where(x.equals(0.0), x.like(-math.inf), math.nan)
    return [b.where(above, b.where(above, x, 1.0).log(), edge)]


def is_above_zero(view: std.Log) -> bool:
    """Whether the operand is what `logarithm` makes of one, or a constant of such numbers."""
    known = view.constant(0)
    if known is not None:
        return bool((known > 0).all())
    made = view.facts.maker(view.data)
    if not isinstance(made, std.Where) or not (view.facts.uniform(made.no) or 0) > 0:
        return False
    test = view.facts.maker(made.condition)
    if not isinstance(test, std.Greater):
        return False
    number, bound = test.node.inputs
    return number is made.yes and view.facts.uniform(bound) == 0
