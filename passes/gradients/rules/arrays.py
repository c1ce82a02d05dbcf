"""Gradients of operators that rearrange or select elements."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.indices import is_never_negative
from lstm_lower.passes.formulas.rows import add_rows, flatten_rows, padded
from lstm_lower.passes.formulas.sizes import Size, at_least, at_most, entries, from_end, up_to, wide
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    again,
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
def _reshape(op: std.Moving, b: Builder, dys: Cotangents) -> Gradients:
    return reshaped_like(dys[0], b.operand(op))


@differentiates(std.Expand)
def _expand(op: std.Expand, b: Builder, dys: Cotangents) -> Gradients:
    return unbroadcast(dys[0], b.operand(op))


@differentiates(std.Range)
def _range(op: std.Range, b: Builder, dys: Cotangents) -> Gradients:
    """Each number is the start and so many times the step; the limit tells their number alone."""
    total = summed(dys[0], [0])
    numbers = up_to(b, dys[0].size(0)).cast(dys[0].dtype)
    return [
        reshaped_like(total, b.operand(op)),
        None,
        reshaped_like(summed(dys[0] * numbers, [0]), b.operand(op, 2)),
    ]


@differentiates(std.Transpose)
def _transpose(op: std.Transpose, b: Builder, dys: Cotangents) -> Gradients:
    if op.perm is None:
        # However many axes there are, turned round twice.
        return again(op, b, [dys[0]])
    order = sorted(range(len(op.perm)), key=op.perm.__getitem__)
    return b.transpose(dys[0], order)


@differentiates(std.Concat)
def _concat(op: std.Concat, b: Builder, dys: Cotangents) -> Gradients:
    """The parts of the gradient."""
    axis = int(op.attribute("axis", 0)) if op.axis is None else op.axis
    parts = [b.operand(op, i) for i in range(len(op.inputs))]
    sizes = b.sizes([part.size(axis) for part in parts])
    found = b.ops(std.Split, dys[0], sizes, outputs=len(parts), axis=axis)
    return [b.set_shape(dx, x.shape) if x.shape is not None else dx for dx, x in zip(found, parts, strict=True)]


@differentiates(std.Split)
def _split(op: std.Split, b: Builder, dys: Cotangents) -> Gradients:
    axis = int(op.attribute("axis", 0)) if op.axis is None else op.axis
    return b.concat([dys[i] for i in range(len(dys))], axis)


@differentiates(std.Slice)
def _slice(op: std.Slice, b: Builder, dys: Cotangents) -> Gradients:
    """Zeros with the gradient at the places that were read, axis by axis; by numbers where axes are not known."""
    axes, steps, x = op.axes, op.steps, b.operand(op)
    if axes is None or steps is None or x.shape is None:
        return from_places(op, b, dys)
    starts = entries(b.operand(op, 1)) or [wide(b.operand(op, 1)).slice(i, i + 1, axis=0) for i in range(len(axes))]
    dx = dys[0]
    for position, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        size, length = x.size(axis), dx.size(axis)
        if abs(step) != 1:
            dx = _spread(op, b, dx, axis, size, position)
            continue
        start = at_least(from_end(starts[position], size), 0)
        before = at_most(start, size) if step > 0 else at_most(start, size - 1) + 1 - length
        dx = dx if step > 0 else dx.builder.reverse(dx, axis)
        dx = padded(dx, axis, before, size - before - length)
    return reshaped_like(dx, x)


def _spread(op: std.Standard, b: Builder, dx: Expr, axis: int, size: Size, position: int) -> Expr:
    """Puts the elements where a Slice with a step read them: each place looks up its element, or a zero behind all."""
    b, length = dx.builder, dx.size(axis)
    bounds = [wide(b.operand(op, i)).slice(position, position + 1, axis=0) for i in (1, 2, 4)]
    places = b.op(std.Slice, up_to(b, size), bounds[0], bounds[1], b.ints(0), bounds[2])
    nothing = b.op(std.Expand, b.sizes([length]), b.sizes([size]))
    element = b.op(std.ScatterElements, nothing, places, up_to(b, length), axis=0)
    return padded(dx, axis, 0, 1).take(element, axis=axis)


@differentiates(std.Gather)
def _gather(op: std.Gather, b: Builder, dys: Cotangents) -> Gradients:
    """Adds the rows of the gradient up, at the numbers by which they were read."""
    x, axis = b.operand(op), op.axis
    rank, places = op.rank(), op.rank(1)
    if axis is None or rank is None or places is None:
        return from_places(op, b, dys)
    place = b.facts.constant(op.indices)
    if place is not None and not places and x.shape is not None and dys[0].shape is not None:
        return _one_element(op, b, dys, axis, int(place))
    # The axes of the indices stand where the axis stood: bring them to the front.
    order = [*range(axis, axis + places), *range(axis), *range(axis + places, rank - 1 + places)]
    rows = flatten_rows(b.transpose(dys[0], order), places)
    size = x.size(axis)
    numbers = wide(b.operand(op, 1))
    numbers = numbers if places == 1 else numbers.reshape(-1)
    if not is_never_negative(numbers.value, b.facts):
        numbers = b.where(numbers < 0, numbers + size, numbers)
    total = add_rows(widened(rows), numbers, size).cast(x.dtype)
    back = sorted(range(rank), key=[axis, *(i for i in range(rank) if i != axis)].__getitem__)
    return reshaped_like(b.transpose(total, back), x)


def _one_element(op: std.Standard, b: Builder, dys: Cotangents, axis: int, place: int) -> Expr:
    """Zeros around the gradient of the one element that was read."""
    x = b.operand(op)
    size = x.size(axis)
    before, behind = (place, size - 1 - place) if place >= 0 else (size + place, -1 - place)
    assert x.shape is not None
    return b.set_shape(padded(dys[0].unsqueeze(axis), axis, before, behind), x.shape)
