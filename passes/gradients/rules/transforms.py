"""Gradients of linear transforms and of determinants."""

from __future__ import annotations

import numpy as np

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr
from lstm_lower.passes.gradients.registry import Adjoint, Gradients, differentiates, reshaped_like
from lstm_lower.passes.rules.indexing import INT64
from lstm_lower.passes.rules.sizes import Size, divided, scalar, up_to, wide


@differentiates(std.DFT)
def _dft(op: std.DFT, n: Adjoint) -> Gradients:
    """The conjugate transpose of the transform is its inverse, without the division by the length.

    Of a transform to half of the frequencies the others have no gradient; of one from half of them, each of these
    stands for two, but for the first and, of an even length, the last.
    """
    axis, x = op.axis, n.x()
    if axis is None or x.shape is None:
        raise n.unsupported("axis, for the gradient,", "a known one", "an axis of run time, or an unknown rank")
    parts = x.shape[-1]
    if not isinstance(parts, int):
        raise n.unsupported("input 0, for its gradient,", "a known size of the last axis", "an unknown one")
    half = op.onesided and op.inverse
    length = _length(op, n, axis)
    # The whole of what the transform reads, zeros where a half is left out.
    dy = n.dy if half else _fitted(n.dy, axis, length)
    inputs = [dy.value, None, *op.node.inputs[2:]]
    changed = {"inverse": int(not op.inverse), "onesided": int(half)}
    dx = n.again(inputs, **changed)
    number = scalar(n.b, length).cast(x.dtype) if isinstance(length, Expr) else float(length)
    dx = dx / number if op.inverse else dx * number
    if half:
        dx = dx * _twofold(n, axis, length)
    dx = _fitted(dx, axis, x.size(axis))
    last = len(x.shape) - 1
    return [reshaped_like(dx.slice(0, 1, axis=last) if parts == 1 else dx, x)]


def _length(op: std.DFT, n: Adjoint, axis: int) -> Size:
    """The number of places of the signal that the transform reads or makes."""
    if op.length is not None:
        known = n.b.facts.constant(op.length)
        return int(known.reshape(-1)[0]) if known is not None else wide(n.x(1)).reshape(1)
    size = n.x().size(axis)
    return (size - 1) * 2 if op.inverse and op.onesided else size


def _fitted(x: Expr, axis: int, size: Size) -> Expr:
    """Cut or filled with zeros behind to a size along an axis."""
    shape, rank = x.shape or (), len(x.shape or ())
    missing = size - x.size(axis)
    if isinstance(missing, int) and missing == 0:
        return x
    widths: list[Size] = [0] * (2 * rank)
    widths[axis + rank] = missing
    made = x.builder.op(std.Pad, x, x.builder.sizes(widths))
    own = size if isinstance(size, int) else None
    return x.builder.set_shape(made, [own if i == axis else dim for i, dim in enumerate(shape)])


def _twofold(n: Adjoint, axis: int, length: Size) -> Expr:
    """2 for each frequency that stands for its conjugate too, else 1, along an axis."""
    b, rank = n.b, n.rank()
    numbers = up_to(b, divided(length, 2) + 1)
    alone = b.op(std.Or, b.op(std.Equal, numbers, numbers.like(0)), b.op(std.Equal, numbers * 2, numbers.like(length)))
    weights = b.where(alone, b.constant(1, n.dy.dtype), 2)
    return weights.unsqueeze(*range(1, rank - axis))


@differentiates(std.Col2Im)
def _col2im(op: std.Col2Im, n: Adjoint) -> Gradients:
    """The blocks of the padded image, one after another."""
    axes = len(n.dy.shape or ()) - 2
    if axes < 1:
        raise n.unsupported("image_shape, for the gradient,", "a known length", "an unknown one")
    block = wide(n.x(2))
    dilations, strides = (op.attribute(name, [1] * axes) for name in ("dilations", "strides"))
    pads = list(op.attribute("pads", [0] * (2 * axes)))
    dx = n.dy
    if any(pads):
        dx = n.b.op(std.Pad, dx, n.b.ints(0, 0, *pads[:axes], 0, 0, *pads[axes:]))
    sizes: list[Size] = []
    for axis in range(axes):
        # Each axis becomes two, places within a block and blocks.
        at = 2 + 2 * axis
        size = block.slice(axis, axis + 1, axis=0)
        count = divided(dx.size(at) - (size - 1) * dilations[axis] - 1, strides[axis]) + 1
        places = up_to(n.b, size) * dilations[axis]
        dx = n.b.op(std.Gather, dx, places.unsqueeze(1) + up_to(n.b, count) * strides[axis], axis=at)
        sizes += [size, count]
    order = [0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2)]
    return [reshaped_like(dx.transpose(*order), n.x())]


@differentiates(std.Det)
def _det(op: std.Det, n: Adjoint) -> Gradients:
    """The cofactors: right for singular matrices too."""
    x = n.x()
    size = None if x.shape is None else x.shape[-1]
    if not isinstance(size, int) or size < 1:
        raise n.unsupported("X, for the gradient,", "a known number of rows", size)
    dy = n.dy.unsqueeze(-2, -1)
    if size == 1:
        return [reshaped_like(dy, x)]
    # [size, size - 1]: the other rows than each.
    others = [[j for j in range(size) if j != i] for i in range(size)]
    numbers = n.b.constant(np.asarray(others), INT64)
    rank = len(x.shape or ())
    # [..., row, others, column, others] -> [..., row, column, others, others].
    rows = n.b.op(std.Gather, x, numbers, axis=rank - 2)
    minors = n.b.op(std.Gather, rows, numbers, axis=rank)
    front = list(range(rank - 2))
    minors = minors.transpose(*front, rank - 2, rank, rank - 1, rank + 1)
    signs = n.b.constant((-1.0) ** np.add.outer(np.arange(size), np.arange(size)), x.dtype)
    return [reshaped_like(n.b.op(std.Det, minors) * signs * dy, x)]
