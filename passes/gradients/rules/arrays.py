"""Gradients of operators that rearrange or select elements."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.indices import is_never_negative
from lstm_lower.passes.formulas.rows import add_rows, flatten_rows, padded
from lstm_lower.passes.formulas.sizes import Size, at_least, at_most, entries, from_end, up_to, wide
from lstm_lower.passes.gradients.registry import (
    Adjoint,
    Gradients,
    differentiates,
    reshaped_like,
    stops,
    summed,
    unbroadcast,
    widened,
)
from lstm_lower.passes.gradients.rules.moving import from_places

stops(std.Shape, std.Size, std.ConstantOfShape, std.EyeLike, std.NonZero, std.Random)


@differentiates(std.Reshape, std.Flatten, std.Squeeze, std.Unsqueeze)
def _reshape(op: std.Moving, n: Adjoint) -> Gradients:
    return [reshaped_like(n.dy, n.x())]


@differentiates(std.Expand)
def _expand(op: std.Expand, n: Adjoint) -> Gradients:
    return [unbroadcast(n.dy, n.x())]


@differentiates(std.Range)
def _range(op: std.Range, n: Adjoint) -> Gradients:
    """Each number is the start and so many times the step; the limit tells their number alone."""
    total = summed(n.dy, [0])
    numbers = up_to(n.b, n.dy.size(0)).cast(n.dy.dtype)
    return [reshaped_like(total, n.x(0)), None, reshaped_like(summed(n.dy * numbers, [0]), n.x(2))]


@differentiates(std.Transpose)
def _transpose(op: std.Transpose, n: Adjoint) -> Gradients:
    if op.perm is None:
        # However many axes there are, turned round twice.
        return [n.again([n.dy])]
    order = sorted(range(len(op.perm)), key=op.perm.__getitem__)
    return [n.b.wrap(n.b.transpose(n.dy.value, order))]


@differentiates(std.Concat)
def _concat(op: std.Concat, n: Adjoint) -> Gradients:
    """The parts of the gradient."""
    axis = int(op.attribute("axis", 0)) if op.axis is None else op.axis
    parts = [n.x(i) for i in range(len(op.inputs))]
    sizes = n.b.sizes([part.size(axis) for part in parts])
    found = n.b.ops(std.Split, n.dy, sizes, outputs=len(parts), axis=axis)
    return [n.b.set_shape(dx, x.shape) if x.shape is not None else dx for dx, x in zip(found, parts, strict=True)]


@differentiates(std.Split)
def _split(op: std.Split, n: Adjoint) -> Gradients:
    axis = int(op.attribute("axis", 0)) if op.axis is None else op.axis
    return [n.b.concat([n.cotangent(i) for i in range(len(n.dys))], axis)]


@differentiates(std.Slice)
def _slice(op: std.Slice, n: Adjoint) -> Gradients:
    """Zeros with the gradient at the places that were read, axis by axis; by numbers where axes are not known."""
    axes, steps, x = op.axes, op.steps, n.x()
    if axes is None or steps is None or x.shape is None:
        return [from_places(n)]
    starts = entries(n.x(1)) or [wide(n.x(1)).slice(i, i + 1, axis=0) for i in range(len(axes))]
    dx = n.dy
    for position, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        size, length = x.size(axis), dx.size(axis)
        if abs(step) != 1:
            dx = _spread(n, dx, axis, size, position)
            continue
        start = at_least(from_end(starts[position], size), 0)
        before = at_most(start, size) if step > 0 else at_most(start, size - 1) + 1 - length
        dx = dx if step > 0 else dx.builder.wrap(dx.builder.reverse(dx.value, axis))
        dx = padded(dx, axis, before, size - before - length)
    return [reshaped_like(dx, x)]


def _spread(n: Adjoint, dx: Expr, axis: int, size: Size, position: int) -> Expr:
    """Puts the elements where a Slice with a step read them: each place looks up its element, or a zero behind all."""
    b, length = dx.builder, dx.size(axis)
    bounds = [wide(n.x(i)).slice(position, position + 1, axis=0) for i in (1, 2, 4)]
    places = b.op(std.Slice, up_to(b, size), bounds[0], bounds[1], b.ints(0), bounds[2])
    nothing = b.op(std.Expand, b.sizes([length]), b.sizes([size]))
    element = b.op(std.ScatterElements, nothing, places, up_to(b, length), axis=0)
    return padded(dx, axis, 0, 1).take(element, axis=axis)


@differentiates(std.Gather)
def _gather(op: std.Gather, n: Adjoint) -> Gradients:
    """Adds the rows of the gradient up, at the numbers by which they were read."""
    x, axis = n.x(), op.axis
    rank, places = op.rank(), op.rank(1)
    if axis is None or rank is None or places is None:
        return [from_places(n)]
    place = n.b.facts.constant(op.indices)
    if place is not None and not places and x.shape is not None and n.dy.shape is not None:
        return [_one_element(n, axis, int(place))]
    # The axes of the indices stand where the axis stood: bring them to the front.
    order = [*range(axis, axis + places), *range(axis), *range(axis + places, rank - 1 + places)]
    rows = flatten_rows(n.b.wrap(n.b.transpose(n.dy.value, order)), places)
    size = x.size(axis)
    numbers = wide(n.x(1))
    numbers = numbers if places == 1 else numbers.reshape(-1)
    if not is_never_negative(numbers):
        numbers = n.b.where(numbers < 0, numbers + size, numbers)
    total = add_rows(widened(rows), numbers, size).cast(x.dtype)
    back = sorted(range(rank), key=[axis, *(i for i in range(rank) if i != axis)].__getitem__)
    return [reshaped_like(n.b.wrap(n.b.transpose(total.value, back)), x)]


def _one_element(n: Adjoint, axis: int, place: int) -> Expr:
    """Zeros around the gradient of the one element that was read."""
    x = n.x()
    size = x.size(axis)
    before, behind = (place, size - 1 - place) if place >= 0 else (size + place, -1 - place)
    assert x.shape is not None
    return n.b.set_shape(padded(n.dy.unsqueeze(axis), axis, before, behind), x.shape)
