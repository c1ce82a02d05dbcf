"""Arithmetic of complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.dtypes import PARTS, is_complex
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.complex_numbers.moving import again, known
from lstm_lower.passes.complex_numbers.registry import Parts, by_parts
from lstm_lower.passes.formulas.complex_numbers import each, joined, product, quotient

Results = Sequence[Expr]


@by_parts(std.Neg, std.Add, std.Sub, std.Sum)
def _linear(view: std.Elementwise, p: Parts) -> Results:
    """What does to one part what it does to the other; operands broadcast along all axes but the last."""
    return again(view, p, *(p.of(x) for x in view.inputs if x is not None))


@by_parts(std.Mul)
def _mul(view: std.Mul, p: Parts) -> Results:
    x, y = map(p.each, _two(view))
    return [joined(*product(x, y))]


@by_parts(std.Div)
def _div(view: std.Div, p: Parts) -> Results:
    x, y = map(p.each, _two(view))
    return [joined(*quotient(x, y))]


@by_parts(std.Reciprocal)
def _reciprocal(view: std.Reciprocal, p: Parts) -> Results:
    x = p.each(view.data)
    return [joined(*quotient((x[0].like(1), x[0].like(0)), x))]


def _two(view: std.Standard) -> list[ir.Value]:
    return [x for x in view.inputs if x is not None]


@by_parts(std.Exp)
def _exp(view: std.Exp, p: Parts) -> Results:
    real, imaginary = p.each(view.data)
    size, b = real.exp(), p.builder
    return [joined(size * b.op(std.Cos, imaginary), size * b.op(std.Sin, imaginary))]


@by_parts(std.Equal)
def _equal(view: std.Equal, p: Parts) -> Results:
    same = each(p.builder.op(std.Equal, *map(p.of, _two(view))))
    return [p.builder.op(std.And, *same)]


@by_parts(std.MatMul, std.Einsum)
def _bilinear(view: std.MatMul | std.Einsum, p: Parts) -> Results:
    """What is linear in each of two operands."""
    operands = _two(view)
    if len(operands) == 1:
        return [joined(*(again(view, p, part)[0] for part in p.each(operands[0])))]
    (a, b), (c, d) = map(p.each, operands)
    times: Callable[[Expr, Expr], Expr] = lambda x, y: again(view, p, x, y)[0]  # noqa: E731
    return [joined(times(a, c) - times(b, d), times(a, d) + times(b, c))]


@by_parts(std.ReduceSum, std.ReduceMean)
def _reduction(view: std.ReduceSum | std.ReduceMean, p: Parts) -> Results:
    given = view.operand(1)
    if view.axes is None and given is not None and view.attribute("noop_with_empty_axes", 0):
        axes = p.builder.wrap(given)
        # What is counted from behind has one axis more behind it.
        return again(view, p, p.of(view.data), p.builder.where(axes < 0, axes - 1, axes))
    return [p.of(view.data).reduce(type(view), known(view, "axes", view.axes), keepdims=view.keepdims)]


@by_parts(std.CumSum)
def _cumulative(view: std.CumSum, p: Parts) -> Results:
    (axis,) = known(view, "axis", view.axis)
    return again(view, p, p.of(view.data), p.builder.constant(axis, ir.DataType.INT64))


@by_parts(std.Cast)
def _cast(view: std.Cast, p: Parts) -> Results:
    """Of what becomes complex the imaginary part is 0; of what is no longer, it is dropped, as in TensorFlow."""
    x = p.of(view.data)
    if not is_complex(view.to):
        return [each(x)[0].cast(view.to)]
    x = x.cast(PARTS[view.to])
    return [x if is_complex(view.dtype()) else joined(x, p.builder.zeros_like(x))]
