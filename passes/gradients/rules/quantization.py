"""Gradients of quantization: those of what integers stand for, straight through the rounding.

The gradient of an integer is a number of a floating dtype: that of what it counts, steps of a scale. Where a number was
beyond the range of the integers, nothing is passed through. Sources: Jacob et al., "Quantization and Training of Neural
Networks for Efficient Integer-Arithmetic-Only Inference", 2018, and `fake_quantize_per_tensor_affine` of PyTorch; of
scales, Esser et al., "Learned Step Size Quantization", 2020.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.rows import padded, reshape_to
from lstm_lower.passes.formulas.sizes import divided
from lstm_lower.passes.formulas.spatial import spread
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    again,
    differentiates,
    in_shape_of,
    reshaped_like,
    summed,
)
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.passes.gradients.rules.windows import of_weights, window_axes, window_places


@differentiates(std.QuantizeLinear)
def _quantize(op: std.QuantizeLinear, b: Builder, dys: Cotangents) -> Gradients:
    """Of what is rounded to an integer of the range."""
    dtype = b.output(op).dtype
    scale = widened(_each(op, b))
    steps = widened(b.operand(op)).cast(scale.dtype) / scale
    least, most = (b.constant(bound, scale.dtype) for bound in (dtype.min, dtype.max))
    zero = b.optional(op, 2)
    if zero is not None and b.facts.uniform(zero.value) != 0:
        zero = _along(op, zero.cast(scale.dtype))
        least, most = least - zero, most - zero
    level = b.op(std.Round, steps)
    slope = b.where((level >= least) & (level <= most), dys[0].cast(scale.dtype) / scale, 0)
    return slope, _of_scale(op, b, -(slope * steps)) if dys.needs(1) else None


@differentiates(std.DequantizeLinear)
def _dequantize(op: std.DequantizeLinear, b: Builder, dys: Cotangents) -> Gradients:
    """To the scale: what it is a scale of."""
    numbers = dys[0] * _each(op, b) if dys.needs(0) else None
    if not dys.needs(1):
        return [numbers]
    scale = b.operand(op, 1)
    whole = b.op(std.Expand, scale.like(1), scale.sizes())
    steps = again(op, b, [op.data, whole, op.zero_point])
    return numbers, _of_scale(op, b, dys[0] * steps)


@differentiates(std.DynamicQuantizeLinear)
def _dynamic_quantize(op: std.DynamicQuantizeLinear, b: Builder, dys: Cotangents) -> Gradients:
    """All numbers are within the range, which they make."""
    return dys[0] / b.output(op, 1)


@differentiates(std.MatMulInteger)
def _product(op: std.MatMulInteger, b: Builder, dys: Cotangents) -> Gradients:
    dy = widened(dys[0])
    zeros = b.optional(op, 2), b.optional(op, 3)
    rows = zeros[0] is not None and zeros[0].shape is not None and len(zeros[0].shape) == 1
    left = _centred(b.operand(op), zeros[0].unsqueeze(1) if rows and zeros[0] is not None else zeros[0], dy.dtype)
    right = _centred(b.operand(op, 1), zeros[1], dy.dtype)
    return pullback(b, [left @ right], [left, right], [dy])


@differentiates(std.ConvInteger)
def _convolution(op: std.ConvInteger, b: Builder, dys: Cotangents) -> Gradients:
    dy, axes, rank = widened(dys[0]), window_axes(op, b), op.known_rank(1)
    places = window_places(axes, b.operand(op), b.output(op))
    zeros = b.optional(op, 3)
    if zeros is not None and b.facts.rank(zeros.value) == 1:
        zeros = zeros.reshape(-1, *[1] * (rank - 1))
    dx = dw = None
    if dys.needs(0):
        weights = _centred(b.operand(op, 1), zeros, dy.dtype)
        dx = in_shape_of(spread(dy, weights, axes, places, op.group), b.operand(op))
    if dys.needs(1):
        image = _centred(b.operand(op), b.optional(op, 2), dy.dtype)
        dw = in_shape_of(of_weights(image, dy, axes, places, op.group), b.operand(op, 1))
    return dx, dw


def _centred(integers: Expr, zero: Expr | None, dtype: ir.DataType) -> Expr:
    """Integers less their zero point, as numbers."""
    numbers = integers.cast(dtype)
    if zero is None or integers.builder.facts.uniform(zero.value) == 0:
        return numbers
    return numbers - zero.cast(dtype)


def _each(op: std.Scaled, b: Builder) -> Expr:
    """The scale of each number, as far as it does not broadcast by itself."""
    return _along(op, b.operand(op, 1))


def _along(op: std.Scaled, scales: Expr) -> Expr:
    b = scales.builder
    if op.block_size:
        ones = b.op(std.ConstantOfShape, b.operand(op).sizes(), value=ir.tensor([1], ir.DataType.INT8))
        blocks = {"axis": op.attribute("axis", 1), "block_size": op.block_size}
        return b.op(std.DequantizeLinear, ones, scales, **blocks)
    if op.known_rank(1) == 0:
        return scales
    if b.facts.elements(scales.value) == 1:
        return scales.reshape(1)
    axis, rank = op.axis, op.known_rank()
    assert axis is not None
    return scales.reshape(-1, *[1] * (rank - 1 - axis))


def _of_scale(op: std.Scaled, b: Builder, slope: Expr) -> Expr:
    """The sum over all numbers that have one scale."""
    if op.known_rank(1) == 0 or b.facts.elements(op.scale) == 1:
        total = b.op(std.ReduceSum, widened(slope), keepdims=0).cast(slope.dtype)
        return reshaped_like(total, b.operand(op, 1))
    rank, axis = op.known_rank(), op.axis
    assert axis is not None
    if op.block_size:
        return _of_blocks(slope, b.operand(op, 1), axis, op.block_size)
    return summed(slope, [i for i in range(rank) if i != axis])


def _of_blocks(slope: Expr, scale: Expr, axis: int, block: int) -> Expr:
    """Sums over the blocks of an axis, of which the last one may be shorter."""
    rank, size = len(scale.shape or ()), slope.size(axis)
    count = divided(size + block - 1, block)
    wide = padded(slope, {axis: (0, count * block - size)})
    sizes = [slope.size(i) for i in range(rank)]
    apart = slope.builder.sizes([*sizes[:axis], count, block, *sizes[axis + 1 :]])
    return summed(reshape_to(wide, apart), [axis + 1])
