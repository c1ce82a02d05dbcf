"""Gradients of operators that look elements up by their places, or change them there."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.rows import add_rows, reshape_to, tail_of
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    again,
    demanded_output,
    differentiates,
    reshaped_like,
    shape_of,
    widened,
)
from lstm_lower.passes.gradients.rules.moving import around, from_places


@differentiates(std.GatherElements)
def _gather_elements(op: std.GatherElements, b: Builder, dys: Cotangents) -> Gradients:
    if b.opset < 16:
        return from_places(op, b, dys)
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
    return reshaped_like(add_rows(widened(rows), found, count).cast(x.dtype), x)


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
        return kept, None, _found(op, b, dy) if dys.needs(2) else None
    if reduction == "add":
        return dy, None, _found(op, b, dy) if dys.needs(2) else None
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
    own, theirs = _found(op, b, rest) - updates, _found(op, b, count)
    share = _found(op, b, dys[0] * data * whole) * b.where(theirs > 1, b.where(theirs > 2, 0, own), 1)
    return dys[0] * product, None, b.where(zero, share, _found(op, b, dys[0] * data * product) / others)


def _extremes(op: std.Scatter, b: Builder, dys: Cotangents) -> Gradients:
    """Equal shares of the data and the updates that are the result."""
    data, updates, y = b.operand(op), b.operand(op, 2), b.output(op)
    dy = widened(dys[0])
    own = data.equals(y).cast(dy.dtype)
    theirs = updates.equals(_found(op, b, y)).cast(dy.dtype)
    shares = dy / _with_operands(op, b, own, theirs, reduction="add")
    return own * shares, None, theirs * _found(op, b, shares) if dys.needs(2) else None


def _with_operands(op: std.Standard, b: Builder, data: Expr, updates: Expr, **changed: str) -> Expr:
    """The same scatter of other updates into other data."""
    return again(op, b, [data, op.node.inputs[1], updates], **changed)


def _found(op: std.Scatter, b: Builder, data: Expr) -> Expr:
    """What data have at the places of the updates."""
    if isinstance(op, std.ScatterND):
        return b.op(std.GatherND, data, b.operand(op, 1))
    return b.op(std.GatherElements, data, b.operand(op, 1), axis=op.attribute("axis", 0))
