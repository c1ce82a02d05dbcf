"""DeformConv as a product of samples of the image, whose places offsets move."""

from __future__ import annotations

import functools
import itertools
import operator

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.decompositions.images import Image, number_of
from lstm_lower.passes.decompositions.registry import decomposes
from lstm_lower.passes.formulas.kernels import COMPUTE_DTYPES
from lstm_lower.passes.formulas.rows import INT64, reshape_to
from lstm_lower.passes.formulas.sizes import Size, divided, remainder, up_to


@decomposes(std.DeformConv)
def _deform_conv(op: std.DeformConv, b: Builder) -> Expr:
    """For each place of the kernel the image at that place and its offset, times the mask; then a product."""
    x, weights, offsets = b.wrap(op.data), b.wrap(op.weights), b.wrap(op.offsets)
    if x.shape is None or len(x.shape) != 4:
        raise op.unsupported("X, for the gradient,", "rank 4", x.shape)
    kernel: list[Size] = list(op.kernel) if op.kernel is not None else [weights.size(axis) for axis in (2, 3)]
    dtype = COMPUTE_DTYPES.get(x.dtype, x.dtype)
    # Offset groups count as images of their own.
    groups, places = op.offset_groups, kernel[0] * kernel[1]
    sizes: list[Size] = [x.size(axis) for axis in range(4)]
    images: Size = sizes[0] * groups
    channels = divided(sizes[1], groups)
    image = Image(reshape_to(x.cast(dtype), b.sizes([images, channels, *sizes[2:]])))
    out = [offsets.size(2), offsets.size(3)]
    total = out[0] * out[1]
    moved = reshape_to(offsets.cast(dtype), b.sizes([images, places, 2, *out]))
    near = []
    strides, pads, dilations = op.strides, op.pads, op.dilations
    assert strides is not None
    assert pads is not None
    assert dilations is not None
    for axis in range(2):
        steps = up_to(b, out[axis]) * strides[axis] - pads[axis][0]
        steps = steps.unsqueeze(1) if axis == 0 else steps
        base = (_taps(b, kernel, axis, dilations[axis]).unsqueeze(1, 2) + steps).cast(dtype)
        at = moved.slice(axis, axis + 1, axis=2).squeeze(2) + base
        near.append(_around(reshape_to(at, b.sizes([images, total * places])), number_of(b, sizes[2 + axis], dtype)))
    terms = []
    for row, column in itertools.product(*near):
        term = image.at([row[0], column[0]]) * (row[1] * column[1]).unsqueeze(-1)
        terms.append(b.where((row[2] & column[2]).unsqueeze(-1), term, 0))
    sampled = functools.reduce(operator.add, terms)
    if op.mask is not None:
        mask = reshape_to(b.wrap(op.mask).cast(dtype), b.sizes([images, total * places]))
        sampled = sampled * mask.unsqueeze(-1)
    # [N * offset groups, places * out, channels] -> [N, groups, channels * places, out].
    rows = divided(sizes[1], op.group)
    columns = reshape_to(sampled.transpose(0, 2, 1), b.sizes([sizes[0], op.group, rows * places, total]))
    outputs = weights.size(0)
    matrix = reshape_to(weights.cast(dtype), b.sizes([op.group, divided(outputs, op.group), rows * places]))
    result = reshape_to(matrix @ columns, b.sizes([sizes[0], outputs, *out]))
    if op.bias is not None:
        result = result + b.wrap(op.bias).cast(dtype).unsqueeze(1, 2)
    return result.cast(x.dtype)


def _taps(b: Builder, kernel: list[Size], axis: int, dilation: int) -> Expr:
    """Where each place of the kernel lies along an axis."""
    height, width = kernel
    if isinstance(height, int) and isinstance(width, int):
        return b.constant([(k // width, k % width)[axis] * dilation for k in range(height * width)], INT64)
    found = (divided, remainder)[axis](up_to(b, height * width), width)
    assert isinstance(found, Expr)
    return found * dilation


def _around(at: Expr, size: Expr) -> list[tuple[Expr, Expr, Expr]]:
    """The elements before and behind a place, their weights, and whether they are in the image."""
    floor = at.floor()
    part = at - floor
    found = []
    for place, weight in ((floor, 1 - part), (floor + 1, part)):
        inside = (place > -1) & (place < size)
        found.append((place.maximum(0).minimum(size - 1).cast(INT64), weight, inside))
    return found
