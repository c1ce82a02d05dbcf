"""Gradients of operators that rearrange, repeat, pad or choose elements, or look them up or change them by places."""

from __future__ import annotations

import functools
import operator

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr
from lstm_lower.passes.formulas.indices import is_never_negative
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.rows import add_rows, flatten_rows, padded, reshape_to, tail_of
from lstm_lower.passes.formulas.sizes import Size, at_least, at_most, entries, from_end, up_to, wide
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    again,
    demanded_output,
    differentiates,
    reshaped_like,
    shape_of,
    stops,
    summed,
    unbroadcast,
)


def from_places(op: std.Standard, b: Builder, dys: Cotangents, *, zeros: bool = False) -> Expr:
    """The gradient by numbers: where the operator takes the elements' numbers to, there it takes the elements.

    It serves every operator whose results are elements of its first operand, in all its forms; `zeros` says that there
    may be zeros among them.
    """
    x = b.operand(op)
    size = b.op(std.Size, x).reshape(1)
    numbers = up_to(b, size)
    numbers = reshape_to(numbers - size if zeros else numbers, shape_of(x))
    taken = again(op, b, [numbers, *op.node.inputs[1:]])
    # A zero that is no element's number becomes that behind all, which is lost.
    taken = taken + size if zeros else taken
    total = add_rows(widened(dys[0]).reshape(-1, 1), taken.reshape(-1), size, none_lost=not zeros)
    return reshaped_like(total.cast(dys[0].dtype), x)


def around(x: Expr, axis: Size) -> list[Size]:
    """The number of elements before an axis, along it and behind it: three sizes for any rank.

    Args:
        x: a value.
        axis: the axis, maybe only known at run time and counted from behind.
    """
    b, shape = x.builder, x.shape
    if isinstance(axis, int) and shape is not None:
        axis %= len(shape)
        parts = [[x.size(i) for i in axes] for axes in (range(axis), range(axis + 1, len(shape)))]
        before, behind = (functools.reduce(operator.mul, sizes, 1) for sizes in parts)
        return [before, x.size(axis), behind]
    sizes = x.sizes()
    at = from_end(axis, sizes.sizes())
    ends = [sizes.slice(0, at, axis=0), sizes.slice(at + 1, END, axis=0)]
    # A product of no sizes is refused by some runtimes.
    products = [b.op(std.ReduceProd, b.concat([b.ints(1), part], 0), keepdims=1) for part in ends]
    return [products[0], sizes.slice(at, at + 1, axis=0), products[1]]


@differentiates(std.Compress)
def _compress(op: std.Compress, b: Builder, dys: Cotangents) -> Gradients:
    return from_places(op, b, dys)


@differentiates(std.CenterCropPad)
def _center_crop_pad(op: std.CenterCropPad, b: Builder, dys: Cotangents) -> Gradients:
    return from_places(op, b, dys, zeros=True)


@differentiates(std.Tile)
def _tile(op: std.Tile, b: Builder, dys: Cotangents) -> Gradients:
    """The sum over the repetitions, each an axis before the one that is repeated."""
    rank, x = op.known_rank(), b.operand(op)
    repeats = entries(b.operand(op, 1)) or [
        wide(b.operand(op, 1)).slice(axis, axis + 1, axis=0) for axis in range(rank)
    ]
    sizes = b.sizes([size for axis in range(rank) for size in (repeats[axis], x.size(axis))])
    return reshaped_like(summed(reshape_to(dys[0], sizes), range(0, 2 * rank, 2)), x)


@differentiates(std.Trilu)
def _trilu(op: std.Trilu, b: Builder, dys: Cotangents) -> Gradients:
    return _again(op, b, dys)


@differentiates(std.ReverseSequence)
def _reverse_sequence(op: std.ReverseSequence, b: Builder, dys: Cotangents) -> Gradients:
    """Turned round twice, all is where it was."""
    return _again(op, b, dys)


def _again(op: std.Standard, b: Builder, dys: Cotangents) -> Expr:
    """The operator on its result's gradient."""
    return again(op, b, [dys[0], *op.node.inputs[1:]])


@differentiates(std.DepthToSpace)
def _depth_to_space(op: std.DepthToSpace, b: Builder, dys: Cotangents) -> Gradients:
    """SpaceToDepth, whose channels are ordered as those of mode DCR: before opset 28 it has no other."""
    block = op.blocksize
    dx = b.op(std.SpaceToDepth, dys[0], blocksize=block)
    if op.mode == "CRD":
        dx = _channels_swapped(dx, block * block, op, b)
    return reshaped_like(dx, b.operand(op))


@differentiates(std.SpaceToDepth)
def _space_to_depth(op: std.SpaceToDepth, b: Builder, dys: Cotangents) -> Gradients:
    return b.op(std.DepthToSpace, dys[0], blocksize=op.blocksize, mode=op.mode)


def _channels_swapped(x: Expr, blocks: int, op: std.Standard, b: Builder) -> Expr:
    """Channels counted by block and place as channels counted by place and block."""
    sizes = [x.size(axis) for axis in range(4)]
    channels = b.output(op).size(1)
    apart = reshape_to(x, b.sizes([sizes[0], blocks, channels, *sizes[2:]]))
    return reshape_to(apart.transpose(0, 2, 1, 3, 4), b.sizes(sizes))


@differentiates(std.Pad)
def _pad(op: std.Pad, b: Builder, dys: Cotangents) -> Gradients:
    """What is not padding; of what mirrors or repeats elements, sums by their numbers."""
    if op.mode != "constant":
        return from_places(op, b, dys)
    widths, axes, value = b.operand(op, 1), b.optional(op, 3), b.optional(op, 2)
    dx = dvalue = None
    if dys.needs(0):
        zero = None if axes is None else b.constant(0, dys[0].dtype)
        dx = reshaped_like(b.op(std.Pad, dys[0], -widths, zero, *([] if axes is None else [axes])), b.operand(op))
    if value is not None and dys.needs(2):
        padding = [b.constant(1, dys[0].dtype), *([] if axes is None else [axes])]
        outside = b.op(std.Pad, b.zeros_like(b.operand(op)), widths, *padding)
        total = b.op(std.ReduceSum, widened(dys[0] * outside), keepdims=0)
        dvalue = reshaped_like(total.cast(value.dtype), value)
    return dx, None, dvalue


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
    product = b.facts.maker(dys[0].value)
    if isinstance(product, std.MatMul) and op.perm == (1, 0):
        left, right = (b.operand(product, index) for index in (0, 1))
        turned = b.facts.maker(left.value)
        if isinstance(turned, std.Transpose) and turned.perm == (1, 0) and len(right.shape or ()) == 2:
            # A weight that is read transposed is larger than what its gradient is a product of: (X' Y)' = Y' X.
            return right.mT @ b.operand(turned)
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
    dx, around_it = dys[0], {}
    for position, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        size, length = x.size(axis), dx.size(axis)
        if abs(step) != 1:
            dx = _spread(op, b, dx, axis, size, position)
            continue
        start = at_least(from_end(starts[position], size), 0)
        before = at_most(start, size) if step > 0 else at_most(start, size - 1) + 1 - length
        dx = dx if step > 0 else dx.builder.reverse(dx, axis)
        around_it[axis] = before, size - before - length
    return reshaped_like(padded(dx, around_it), x)


def _spread(op: std.Standard, b: Builder, dx: Expr, axis: int, size: Size, position: int) -> Expr:
    """Puts the elements where a Slice with a step read them: each place looks up its element, or a zero behind all."""
    b, length = dx.builder, dx.size(axis)
    bounds = [wide(b.operand(op, i)).slice(position, position + 1, axis=0) for i in (1, 2, 4)]
    places = b.op(std.Slice, up_to(b, size), bounds[0], bounds[1], b.ints(0), bounds[2])
    nothing = b.op(std.Expand, b.sizes([length]), b.sizes([size]))
    element = b.op(std.ScatterElements, nothing, places, up_to(b, length), axis=0)
    return padded(dx, {axis: (0, 1)}).take(element, axis=axis)


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
    total = add_rows(widened(rows), numbers, size, none_lost=True).cast(dys[0].dtype)
    back = sorted(range(rank), key=[axis, *(i for i in range(rank) if i != axis)].__getitem__)
    return reshaped_like(b.transpose(total, back), x)


def _one_element(op: std.Standard, b: Builder, dys: Cotangents, axis: int, place: int) -> Expr:
    """Zeros around the gradient of the one element that was read."""
    x = b.operand(op)
    size = x.size(axis)
    before, behind = (place, size - 1 - place) if place >= 0 else (size + place, -1 - place)
    assert x.shape is not None
    return b.set_shape(padded(dys[0].unsqueeze(axis), {axis: (before, behind)}), x.shape)


@differentiates(std.GatherElements)
def _gather_elements(op: std.GatherElements, b: Builder, dys: Cotangents) -> Gradients:
    zeros = widened(b.zeros_like(b.operand(op)))
    total = b.op(
        std.ScatterElements, zeros, b.operand(op, 1), widened(dys[0]), axis=op.attribute("axis", 0), reduction="add"
    )
    return total.cast(b.operand(op).dtype)


@differentiates(std.GatherND)
def _gather_nd(op: std.GatherND, b: Builder, dys: Cotangents) -> Gradients:
    """Adds rows up at their numbers, which the operator finds as it finds the rows."""
    x, indices = b.operand(op), b.operand(op, 1)
    shape = indices.shape
    depth = None if shape is None else shape[-1]
    if not isinstance(depth, int):
        return from_places(op, b, dys)
    leading = op.batch_dims + depth
    sizes = shape_of(x).slice(0, leading, axis=0)
    count = b.op(std.ReduceProd, sizes, keepdims=1)
    numbers = reshape_to(up_to(b, count), sizes)
    found = b.op(std.GatherND, numbers, indices, batch_dims=op.batch_dims).reshape(-1)
    rows = reshape_to(dys[0], b.concat([found.sizes(), tail_of(x, leading)], 0))
    return reshaped_like(add_rows(widened(rows), found, count, none_lost=True).cast(dys[0].dtype), x)


@differentiates(std.TopK)
def _top_k(op: std.TopK, b: Builder, dys: Cotangents) -> Gradients:
    """The places are the second output, each only once."""
    axis = op.attribute("axis", -1)
    return b.op(std.ScatterElements, b.zeros_like(b.operand(op)), b.output(op, 1), dys[0], axis=axis)


@differentiates(std.Unique)
def _unique(op: std.Unique, b: Builder, dys: Cotangents) -> Gradients:
    """Of equal elements, or equal rows along an axis, the first is read: it gets all of the gradient."""
    x, dy, axis = b.operand(op), dys[0], op.attribute("axis", None)
    before, size, behind = around(x, int(axis)) if axis is not None else (1, b.op(std.Size, x).reshape(1), 1)
    first = demanded_output(op, b, 1)
    rows = reshape_to(dy, b.sizes([before, b.op(std.Size, first).reshape(1), behind])).transpose(1, 0, 2)
    zeros = b.fill(0, [size, before, behind], dy.dtype)
    found = b.op(std.ScatterND, zeros, first.unsqueeze(1), rows)
    return reshaped_like(found.transpose(1, 0, 2), x)


@differentiates(std.OneHot)
def _one_hot(op: std.OneHot, b: Builder, dys: Cotangents) -> Gradients:
    """The sums of what is off and of what is on."""
    inputs = [*op.node.inputs[:2], b.constant([0, 1], dys[0].dtype).value]
    hot = again(op, b, inputs)
    parts = [widened(b.where(hot > 0, *chosen)) for chosen in ((0, dys[0]), (dys[0], 0))]
    totals = [b.op(std.ReduceSum, part, keepdims=0).reshape(1) for part in parts]
    return None, None, b.concat(totals, 0).cast(dys[0].dtype)


@differentiates(std.TensorScatter)
def _tensor_scatter(op: std.TensorScatter, b: Builder, dys: Cotangents) -> Gradients:
    """What is overwritten has no gradient; updates find theirs where their numbers went."""
    data, updates = b.operand(op), b.operand(op, 1)

    def written(into: Expr, what: Expr) -> Expr:
        return again(op, b, [into, what, *op.node.inputs[2:]])

    found = None
    if dys.needs(1):
        size = b.op(std.Size, updates).reshape(1)
        nowhere = b.op(std.Expand, size, shape_of(data))
        numbers = written(nowhere, reshape_to(up_to(b, size), shape_of(updates)))
        total = add_rows(widened(dys[0]).reshape(-1, 1), numbers.reshape(-1), size)
        found = reshaped_like(total.cast(updates.dtype), updates)
    return written(dys[0], b.zeros_like(updates)) if dys.needs(0) else None, found


@differentiates(std.ScatterElements, std.ScatterND)
def _scatter(op: std.Scatter, b: Builder, dys: Cotangents) -> Gradients:
    """By reduction; updates look up at their places what concerns the data there."""
    dy, reduction = dys[0], op.reduction
    if reduction == "none":
        kept = _with_operands(op, b, dy, b.zeros_like(b.operand(op, 2))) if dys.needs(0) else None
        return kept, None, _gathered(op, b, dy) if dys.needs(2) else None
    if reduction == "add":
        return dy, None, _gathered(op, b, dy) if dys.needs(2) else None
    if reduction == "mul":
        return _products(op, b, dys)
    if reduction in ("max", "min"):
        return _extremes(op, b, dys)
    raise op.unsupported("reduction, for the gradient,", "none, add, mul, max or min", reduction)


def _products(op: std.Scatter, b: Builder, dys: Cotangents) -> Gradients:
    """Each factor's gradient is the product of the others, of which a zero is one that nothing may be divided by.

    Zeros are factors of their own, by their sum at each place: it is zero and has their gradients, so that gradients of
    this are right, too. Those of these again are not where a place has three zeros or more.
    """
    data, updates = b.operand(op), b.operand(op, 2)
    ones = b.op(std.Expand, data.like(1), shape_of(data))
    if not dys.needs(2):
        return dys[0] * _with_operands(op, b, ones, updates), None, None
    zero, nothing = updates.equals(0), b.zeros_like(data)
    others = b.where(zero, 1, updates)
    whole = _with_operands(op, b, ones, others)
    count = _with_operands(op, b, nothing, zero.cast(updates.dtype), reduction="add")
    rest = _with_operands(op, b, nothing, b.where(zero, updates, 0), reduction="add")
    product = b.where(count > 0, b.where(count > 1, 0, whole * rest), whole)
    # For a zero: the product of all factors other than zeros, times the other zero if there is one.
    own, theirs = _gathered(op, b, rest) - updates, _gathered(op, b, count)
    share = _gathered(op, b, dys[0] * data * whole) * b.where(theirs > 1, b.where(theirs > 2, 0, own), 1)
    return dys[0] * product, None, b.where(zero, share, _gathered(op, b, dys[0] * data * product) / others)


def _extremes(op: std.Scatter, b: Builder, dys: Cotangents) -> Gradients:
    """Equal shares of the data and the updates that are the result."""
    data, updates, y = b.operand(op), b.operand(op, 2), b.output(op)
    dy = widened(dys[0])
    own = data.equals(y).cast(dy.dtype)
    theirs = updates.equals(_gathered(op, b, y)).cast(dy.dtype)
    shares = dy / _with_operands(op, b, own, theirs, reduction="add")
    return own * shares, None, theirs * _gathered(op, b, shares) if dys.needs(2) else None


def _with_operands(op: std.Standard, b: Builder, data: Expr, updates: Expr, **changed: str) -> Expr:
    """The same scatter of other updates into other data."""
    return again(op, b, [data, op.node.inputs[1], updates], **changed)


def _gathered(op: std.Scatter, b: Builder, data: Expr) -> Expr:
    """Elements of data at the places of the updates."""
    if isinstance(op, std.ScatterND):
        return b.op(std.GatherND, data, b.operand(op, 1))
    return b.op(std.GatherElements, data, b.operand(op, 1), axis=op.attribute("axis", 0))
