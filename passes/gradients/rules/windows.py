"""Gradients of convolutions and poolings.

Those of convolutions are transposed convolutions, and products of matrices, see `spread` and `gathered`. Of poolings,
what windows share is spread by a transposed convolution with ones, channel by channel; of equal elements of a window
the first is the largest, as PyTorch has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.rows import add_rows, reshape_to, tail_of
from lstm_lower.passes.formulas.sizes import Size, at_least, divided, up_to
from lstm_lower.passes.formulas.spatial import SAME, Margins, gathered, margins, slid, spread
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    again,
    demanded_output,
    differentiates,
    expanded_like,
    in_shape_of,
    reshaped_like,
    shape_of,
    summed,
)
from lstm_lower.passes.gradients.rules.reductions import count_of
from lstm_lower.spatial import SpatialAxis

_PADDINGS = {"NOTSET": "EXPLICIT", "VALID": "VALID", "SAME_UPPER": "SAME", "SAME_LOWER": "SAME_LOWER"}


def window_axes(op: std.Windowed, b: Builder) -> list[SpatialAxis]:
    """How the windows slide along each axis.

    Raises:
        UnsupportedOpError: the number of axes is not known.
    """
    if op.dimensions is None:
        op.known_rank()
    kernel: Sequence[Size] | None = op.kernel
    if kernel is None:
        kernel = [b.operand(op, 1).size(axis + 2) for axis in range(op.dimensions or op.known_rank())]
    strides, dilations, pads = op.strides or (), op.dilations or (), op.pads or ()
    padding = _PADDINGS[op.auto_pad]
    explicit = pads if padding == "EXPLICIT" else ((0, 0),) * len(kernel)
    each = zip(kernel, strides, dilations, explicit, strict=True)
    return [SpatialAxis(size, stride, dilation, padding, pair) for size, stride, dilation, pair in each]


def window_places(axes: Sequence[SpatialAxis], image: Expr, result: Expr) -> list[Margins]:
    """What an image lacks to hold all windows, of which each makes an element of the result."""
    each = enumerate(axes, start=2)
    return [margins(axis, image.size(at), result.size(at)) for at, axis in each]


@differentiates(std.Conv)
def _conv(op: std.Conv, b: Builder, dys: Cotangents) -> Gradients:
    axes, x = window_axes(op, b), b.operand(op)
    places = window_places(axes, x, b.output(op))
    dx = dw = None
    if dys.needs(0):
        dx = in_shape_of(spread(dys[0], b.operand(op, 1), axes, places, op.group), x)
    if dys.needs(1):
        dw = in_shape_of(of_weights(x, dys[0], axes, places, op.group), b.operand(op, 1))
    return dx, dw, _of_bias(dys, len(axes))


@differentiates(std.ConvTranspose)
def _conv_transpose(op: std.ConvTranspose, b: Builder, dys: Cotangents) -> Gradients:
    """The result is the image of the convolution that this one is the gradient of."""
    axes, x = window_axes(op, b), b.operand(op)
    places = _transposed_places(op, axes, b)
    dx = dw = None
    if dys.needs(0):
        dx = in_shape_of(slid(dys[0], b.operand(op, 1), axes, places, op.group), x)
    if dys.needs(1):
        dw = in_shape_of(of_weights(dys[0], x, axes, places, op.group), b.operand(op, 1))
    return dx, dw, _of_bias(dys, len(axes))


def of_weights(image: Expr, dy: Expr, axes: Sequence[SpatialAxis], places: Sequence[Margins], groups: int) -> Expr:
    """The weights' gradient [K, C / groups, ...] from the image [N, C, ...] and what windows make [N, K, ...]."""
    b, spatial = image.builder, range(2, 2 + len(axes))
    if groups == 1:
        turned = image.transpose(1, 0, *spatial)
    else:
        sizes = [image.size(axis) for axis in range(2 + len(axes))]
        part = divided(sizes[1], groups)
        apart = reshape_to(image, b.sizes([sizes[0], groups, part, *sizes[2:]]))
        ordered = apart.transpose(2, 1, 0, *(axis + 1 for axis in spatial))
        turned = reshape_to(ordered, b.sizes([part, sizes[0] * groups, *sizes[2:]]))
    return gathered(turned, dy.transpose(1, 0, *spatial), axes, places, groups, [1, 0, *spatial])


def _transposed_places(op: std.ConvTranspose, axes: Sequence[SpatialAxis], b: Builder) -> list[Margins]:
    """What the result lacks to hold all windows, of which the operand has an element each."""
    more = op.output_padding
    assert more is not None
    found = []
    for at, (axis, extra) in enumerate(zip(axes, more, strict=True)):
        before, after = axis.explicit
        if axis.padding not in SAME and not op.sizes_are_given:
            found.append(Margins(before, after - extra))
            continue
        missing = (b.operand(op).size(at + 2) - 1) * axis.stride + axis.extent - b.output(op).size(at + 2)
        total = at_least(missing + extra, 0)
        start = divided(total, 2) if axis.padding == "SAME" else divided(total + 1, 2)
        found.append(Margins(start, missing - start))
    return found


def _of_bias(dys: Cotangents, dimensions: int) -> Expr | None:
    if not dys.needs(2):
        return None
    return summed(dys[0], [0, *range(2, 2 + dimensions)])


_DIGIT = 2**20


@differentiates(std.MaxPool)
def _max_pool(op: std.MaxPool, b: Builder, dys: Cotangents) -> Gradients:
    """Adds the gradient at the places of the largest elements, which the pooling tells."""
    x, axes = b.operand(op), window_axes(op, b)
    if op.storage_order:
        # Its own places are numbers of a transposed image.
        form: dict[str, Any] = {**op.node.attributes, "storage_order": 0}
        again = b.node(std.MaxPool, [x.value], 2, **form)
        places = b.wrap(again.outputs[1])
    else:
        places = demanded_output(op, b, 1)
    size = b.op(std.Size, x).reshape(1)
    dy, where = widened(dys[0]).reshape(-1), places.reshape(-1)
    overlap = any(axis.kernel > axis.stride or axis.dilation > 1 for axis in axes)
    adding = {"reduction": "add"} if overlap else {}
    total = b.op(std.ScatterElements, b.fill(0, size, dy.dtype), where, dy, axis=0, **adding)
    return reshaped_like(total, x)


@differentiates(std.AveragePool)
def _average_pool(op: std.AveragePool, b: Builder, dys: Cotangents) -> Gradients:
    """Each window's share over the elements that it counts."""
    x, axes = b.operand(op), window_axes(op, b)
    places = window_places(axes, x, b.output(op))
    share = dys[0]
    for at, (axis, place) in enumerate(zip(axes, places, strict=True), start=2):
        share = share / _counted(op, axis, place, at, b, dys)
    return _spread_ones(share, axes, places, x)


def _counted(
    op: std.AveragePool, axis: SpatialAxis, place: Margins, at: int, b: Builder, dys: Cotangents
) -> Expr | float:
    """How many elements each window counts along an axis, padding included or not: a number, or one for each window."""
    x, windows = b.operand(op), b.output(op).size(at)
    before, size = place.before, x.size(at)
    first, last = (-before, size + axis.explicit[1]) if op.count_include_pad else (0, size)
    if op.count_include_pad and axis.padding != "EXPLICIT":
        last = size + place.after
    if place.padding == (0, 0) and not op.ceil_mode:
        return float(axis.kernel)
    behind = [1] * (op.known_rank() - at - 1)
    taps = np.arange(axis.kernel) * axis.dilation
    if isinstance(windows, int) and isinstance(before, int) and isinstance(last, int) and isinstance(first, int):
        elements = np.arange(windows)[:, None] * axis.stride - before + taps
        counts = ((elements >= first) & (elements < last)).sum(1)
        return b.constant(counts.reshape(-1, *behind), dys[0].dtype)
    numbers = up_to(b, windows).unsqueeze(1) * axis.stride + (b.ints(*taps.tolist()) - before)
    inside = (numbers >= first) & (numbers < last)
    return inside.cast(ir.DataType.INT64).sum(1).reshape(-1, *behind).cast(dys[0].dtype)


def _spread_ones(share: Expr, axes: Sequence[SpatialAxis], places: Sequence[Margins], x: Expr) -> Expr:
    """Adds each window's share to all its elements."""
    b = share.builder
    apart = share.reshape(-1, 1, *[0] * len(axes))
    ones = b.fill(1, [1, 1, *(axis.kernel for axis in axes)], share.dtype)
    return reshaped_like(spread(apart, ones, axes, places, 1), x)


@differentiates(std.LpPool)
def _lp_pool(op: std.LpPool, b: Builder, dys: Cotangents) -> Gradients:
    x, axes = b.operand(op), window_axes(op, b)
    share = dys[0] * _norm_slope(b.output(op), 1 - op.p)
    total = _spread_ones(share, axes, window_places(axes, x, b.output(op)), x)
    return _power_slope(x, op.p) * total


@differentiates(std.GlobalLpPool)
def _global_lp_pool(op: std.GlobalLpPool, b: Builder, dys: Cotangents) -> Gradients:
    return _power_slope(b.operand(op), op.p) * (dys[0] * _norm_slope(b.output(op), 1 - op.p))


def _power_slope(x: Expr, p: int) -> Expr:
    """The derivative of |x|^p over p."""
    if p == 2:
        return x
    sign = x.builder.op(std.Sign, x)
    return sign if p == 1 else sign * x.abs() ** (p - 1)


def _norm_slope(y: Expr, power: int) -> Expr | float:
    """The power of a norm; of a norm of zero nothing flows."""
    if power == 0:
        return 1.0
    safe = y.builder.where(y > 0, y, 1)
    return y.builder.where(y > 0, safe**power, 0)


@differentiates(std.GlobalAveragePool)
def _global_average_pool(op: std.GlobalAveragePool, b: Builder, dys: Cotangents) -> Gradients:
    x, rank = b.operand(op), op.rank()
    if rank is not None:
        return expanded_like(dys[0] / count_of(x, range(2, rank)), x)
    count = b.op(std.Size, x) / b.op(std.Size, b.output(op)).maximum(1)
    return expanded_like(dys[0] / count.cast(x.dtype), x)


@differentiates(std.GlobalMaxPool)
def _global_max_pool(op: std.GlobalMaxPool, b: Builder, dys: Cotangents) -> Gradients:
    x = b.operand(op)
    # No -1: of a batch without images onnxruntime could not tell it.
    sizes = x.sizes().slice(0, 2, axis=0)
    flat = reshape_to(x, concat([sizes, b.op(std.ReduceProd, tail_of(x, 2), keepdims=1)], 0))
    largest = b.op(std.ArgMax, flat, axis=2, keepdims=1)
    chosen = up_to(b, flat.size(2)).equals(largest)
    return reshaped_like(b.where(chosen, dys[0].reshape(0, 0, 1), 0), x)


@differentiates(std.MaxUnpool)
def _max_unpool(op: std.MaxUnpool, b: Builder, dys: Cotangents) -> Gradients:
    """What stands where the elements were put."""
    if op.target is not None:
        return _put_back(op, b, dys)
    taken = dys[0].reshape(-1).take(b.operand(op, 1).reshape(-1))
    return reshaped_like(taken, b.operand(op))


def _put_back(op: std.MaxUnpool, b: Builder, dys: Cotangents) -> Expr:
    """What stands where the elements' numbers are put, for runtimes disagree on where that is in a given shape.

    The numbers, from 1, are put there as two digits that float32 has exactly.
    """
    x = b.operand(op)
    size = b.op(std.Size, x).reshape(1)
    numbers = reshape_to(up_to(b, size) + 1, shape_of(x))
    high = numbers / _DIGIT
    put = [
        again(op, b, [digit.cast(ir.DataType.FLOAT), *op.node.inputs[1:]]).cast(ir.DataType.INT64)
        for digit in (high, numbers - high * _DIGIT)
    ]
    number = (put[0] * _DIGIT + put[1]).reshape(-1)
    total = add_rows(widened(dys[0]).reshape(-1, 1), b.where(number > 0, number - 1, size), size)
    return reshaped_like(total.cast(x.dtype), x)
