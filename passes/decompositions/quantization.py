"""Operators from integers to integers, as what numbers these stand for makes of it.

The kernels round once, behind an exact product; so do these, behind a product in float32. They differ by a step where
a number is as near to two.
"""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.rewriting import decomposes


@decomposes(std.QLinearMatMul)
def quantized_product(view: std.QLinearMatMul, b: Builder) -> Expr:
    """A MatMul; scales that are vectors are of rows and columns."""
    left, right = _numbers(view, b, 0, axis=0), _numbers(view, b, 3, axis=1)
    return _quantized(view, b, left @ right)


@decomposes(std.QLinearConv)
def quantized_convolution(view: std.QLinearConv, b: Builder) -> Expr:
    """A Conv; its bias has the scale of the product."""
    bias = b.optional(view, 8)
    if bias is not None:
        scale = b.operand(view, 1) * b.operand(view, 4)
        bias = bias.cast(scale.dtype) * scale
    image, weights = _numbers(view, b, 0, axis=1), _numbers(view, b, 3, axis=0)
    return _quantized(view, b, b.op(std.Conv, image, weights, bias, **view.node.attributes))


def _numbers(view: std.QLinear, b: Builder, index: int, axis: int) -> Expr:
    """What an operand stands for, with the scale and the zero point behind it."""
    operands = [b.operand(view, index + place) for place in range(3)]
    return b.op(std.DequantizeLinear, *operands, axis=axis)


def _quantized(view: std.QLinear, b: Builder, result: Expr) -> Expr:
    return b.op(std.QuantizeLinear, result, b.operand(view, 6), b.operand(view, 7))
