"""Gradients of linear transforms and of determinants."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.rows import INT64, fitted, reshape_to
from lstm_lower.passes.formulas.sizes import Size, divided, scalar, up_to, wide
from lstm_lower.passes.gradients.registry import Cotangents, Gradients, again, differentiates, reshaped_like, stops
from lstm_lower.passes.gradients.rules.arrays import around

# Frequencies become whole numbers of bins.
stops(std.MelWeightMatrix)


@differentiates(std.DFT)
def _dft(op: std.DFT, b: Builder, dys: Cotangents) -> Gradients:
    """The conjugate transpose of the transform is its inverse, without the division by the length.

    Of a transform to half of the frequencies the others have no gradient; of one from half of them, each of these
    stands for two, but for the first and, of an even length, the last.
    """
    axis, x, dy = op.axis, b.operand(op), dys[0]
    if axis is None or x.shape is None:
        # The others joined before and behind it, the two parts of a number left out.
        at: Size = wide(b.operand(op, 2)).reshape(1) if op.operand(2) is not None else int(op.attribute("axis", 1))
        axis, x, dy = 1, *(_axis_second(v, at) for v in (x, dy))
    half = op.onesided and op.inverse
    length = _length(op, b, x.size(axis))
    # The whole of what the transform reads, zeros where a half is left out.
    dy = dy if half else fitted(dy, axis, length)
    inputs = [dy.value, None, *([b.constant(axis, INT64).value] if b.opset >= 20 else [])]
    changed = {"inverse": int(not op.inverse), "onesided": int(half)}
    dx = again(op, b, inputs, **changed, **({} if b.opset >= 20 else {"axis": axis}))
    number = scalar(b, length).cast(x.dtype) if isinstance(length, Expr) else float(length)
    dx = dx / number if op.inverse else dx * number
    rank = len(x.shape or ())
    if half:
        dx = dx * _twofold(b, dys, rank - axis, length)
    dx, parts = fitted(dx, axis, x.size(axis)), x.size(-1)
    return reshaped_like(dx if parts == 2 else dx.slice(0, parts, axis=rank - 1), b.operand(op))


def _axis_second(x: Expr, axis: Size) -> Expr:
    """An array of numbers in two parts with all axes before one, and all behind it, made one."""
    before, along, behind = around(x, axis)
    parts = x.size(-1)
    sizes = [before, along, divided(behind, parts), parts]
    joined = reshape_to(x, x.builder.sizes(sizes))
    return x.builder.set_shape(joined, [size if isinstance(size, int) else None for size in sizes])


def _length(op: std.DFT, b: Builder, size: Size) -> Size:
    """The number of places of the signal that the transform reads or makes."""
    if op.length is not None:
        known = b.facts.constant(op.length)
        return int(known.reshape(-1)[0]) if known is not None else wide(b.operand(op, 1)).reshape(1)
    return (size - 1) * 2 if op.inverse and op.onesided else size


def _twofold(b: Builder, dys: Cotangents, axes: int, length: Size) -> Expr:
    """2 for each frequency that stands for its conjugate too, else 1, along the first of some axes."""
    numbers = up_to(b, divided(length, 2) + 1)
    alone = numbers.equals(0) | (numbers * 2).equals(length)
    weights = b.where(alone, b.constant(1, dys[0].dtype), 2)
    return weights.unsqueeze(*range(1, axes))


@differentiates(std.Col2Im)
def _col2im(op: std.Col2Im, b: Builder, dys: Cotangents) -> Gradients:
    """The blocks of the padded image, one after another."""
    axes = _image_axes(op, b)
    block = wide(b.operand(op, 2))
    dilations, strides = (op.attribute(name, [1] * axes) for name in ("dilations", "strides"))
    pads = list(op.attribute("pads", [0] * (2 * axes)))
    dx = dys[0] if dys[0].shape else b.set_shape(dys[0], [None] * (2 + axes))
    if any(pads):
        dx = b.op(std.Pad, dx, b.ints(0, 0, *pads[:axes], 0, 0, *pads[axes:]))
    sizes: list[Size] = []
    for axis in range(axes):
        # Each axis becomes two, places within a block and blocks.
        at = 2 + 2 * axis
        size = block.slice(axis, axis + 1, axis=0)
        count = divided(dx.size(at) - (size - 1) * dilations[axis] - 1, strides[axis]) + 1
        places = up_to(b, size) * dilations[axis]
        dx = dx.take(places.unsqueeze(1) + up_to(b, count) * strides[axis], axis=at)
        sizes += [size, count]
    order = [0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2)]
    return reshaped_like(dx.transpose(*order), b.operand(op))


def _image_axes(op: std.Col2Im, b: Builder) -> int:
    """The number of axes of the image, which operands or attributes tell."""
    lengths = [shape[0] for shape in (b.operand(op, 1).shape, b.operand(op, 2).shape) if shape]
    written = {"strides": 1, "dilations": 1, "pads": 2}
    lengths += [len(op.attribute(name, ())) // each for name, each in written.items()]
    known = [length for length in lengths if isinstance(length, int) and length]
    if not known:
        raise op.unsupported(
            "image_shape, for the gradient,",
            "a known length, its own or that of an attribute",
            std.undeclared(op.operand(1)),
        )
    return known[0]


@differentiates(std.Det)
def _det(op: std.Det, b: Builder, dys: Cotangents) -> Gradients:
    """The cofactors, right for singular matrices too: the determinants with a row of zeros and a single one.

    They are those of matrices of all rows and columns, `[..., row, column, N, N]`.
    """
    x = b.operand(op)
    numbers = up_to(b, x.size(-1))
    # Axes from behind: the matrix, and the row and the column of the one.
    there = [numbers.unsqueeze(*range(1, behind + 1)) for behind in (0, 1, 2, 3)]
    one = there[0].equals(there[2]).cast(x.dtype)
    minors = b.where(there[1].equals(there[3]), one, x.unsqueeze(-3, -4))
    return reshaped_like(b.op(std.Det, minors) * dys[0].unsqueeze(-1, -2), x)
