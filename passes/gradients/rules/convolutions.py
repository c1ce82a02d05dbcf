"""Gradients of convolutions: transposed convolutions, and products of matrices, see `spread` and `gathered`."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.formulas.sizes import Size, at_least, divided
from lstm_lower.passes.formulas.spatial import SAME, Margins, gathered, margins, slid, spread
from lstm_lower.passes.gradients.registry import Cotangents, Gradients, differentiates, summed
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
        dx = _in_shape_of(spread(dys[0], b.operand(op, 1), axes, places, op.group), x)
    if dys.needs(1):
        dw = _in_shape_of(_of_weights(x, dys[0], axes, places, op.group), b.operand(op, 1))
    return dx, dw, _of_bias(dys, len(axes))


@differentiates(std.ConvTranspose)
def _conv_transpose(op: std.ConvTranspose, b: Builder, dys: Cotangents) -> Gradients:
    """The result is the image of the convolution that this one is the gradient of."""
    axes, x = window_axes(op, b), b.operand(op)
    places = _transposed_places(op, axes, b)
    dx = dw = None
    if dys.needs(0):
        dx = _in_shape_of(slid(dys[0], b.operand(op, 1), axes, places, op.group), x)
    if dys.needs(1):
        dw = _in_shape_of(_of_weights(dys[0], x, axes, places, op.group), b.operand(op, 1))
    return dx, dw, _of_bias(dys, len(axes))


def _of_weights(image: Expr, dy: Expr, axes: Sequence[SpatialAxis], places: Sequence[Margins], groups: int) -> Expr:
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


def _in_shape_of(gradient: Expr, operand: Expr) -> Expr:
    """States what sizes the windows leave: those of the operand."""
    shape = operand.shape
    return gradient if shape is None else gradient.builder.set_shape(gradient, shape)
