"""Gradients of operators that look elements up by their places, or change them there."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.rows import add_rows, reshape_to, tail_of
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.gradients.registry import (
    Adjoint,
    Gradients,
    differentiates,
    reshaped_like,
    shape_of,
    widened,
)
from lstm_lower.passes.gradients.rules.moving import around, from_places


@differentiates(std.GatherElements)
def _gather_elements(op: std.GatherElements, n: Adjoint) -> Gradients:
    if n.b.opset < 16:
        return [from_places(n)]
    zeros = widened(n.b.zeros_like(n.x()))
    total = n.b.op(std.ScatterElements, zeros, n.x(1), widened(n.dy), axis=op.attribute("axis", 0), reduction="add")
    return [total.cast(n.x().dtype)]


@differentiates(std.GatherND)
def _gather_nd(op: std.GatherND, n: Adjoint) -> Gradients:
    """Adds rows up at their numbers, which the operator finds as it finds the rows."""
    x, indices = n.x(), n.x(1)
    shape = indices.shape
    depth = None if shape is None else shape[-1]
    if not isinstance(depth, int):
        return [from_places(n)]
    leading = op.batch_dims + depth
    sizes = shape_of(x).slice(0, leading, axis=0)
    count = n.b.op(std.ReduceProd, sizes, keepdims=1)
    numbers = reshape_to(up_to(n.b, count), sizes)
    found = n.b.op(std.GatherND, numbers, indices, batch_dims=op.batch_dims).reshape(-1)
    rows = reshape_to(n.dy, n.b.concat([found.sizes(), tail_of(x, leading)], 0))
    return [reshaped_like(add_rows(widened(rows), found, count).cast(x.dtype), x)]


@differentiates(std.TopK)
def _top_k(op: std.TopK, n: Adjoint) -> Gradients:
    """The places are the second output, each only once."""
    axis = op.attribute("axis", -1)
    return [n.b.op(std.ScatterElements, n.b.zeros_like(n.x()), n.y(1), n.dy, axis=axis)]


@differentiates(std.Unique)
def _unique(op: std.Unique, n: Adjoint) -> Gradients:
    """Of equal elements, or equal rows along an axis, the first is read: it gets all of the gradient."""
    x, dy, axis = n.x(), n.dy, op.attribute("axis", None)
    before, size, behind = around(x, int(axis)) if axis is not None else (1, n.b.op(std.Size, x).reshape(1), 1)
    rows = reshape_to(dy, n.b.sizes([before, n.b.op(std.Size, n.output(1)).reshape(1), behind])).transpose(1, 0, 2)
    zeros = n.b.fill(0, [size, before, behind], dy.dtype)
    found = n.b.op(std.ScatterND, zeros, n.output(1).unsqueeze(1), rows)
    return [reshaped_like(found.transpose(1, 0, 2), x)]


@differentiates(std.OneHot)
def _one_hot(op: std.OneHot, n: Adjoint) -> Gradients:
    """The sums of what is off and of what is on."""
    inputs = [*op.node.inputs[:2], n.b.constant([0, 1], n.dy.dtype).value]
    hot = n.again(inputs)
    parts = [widened(n.b.where(hot > 0, *chosen)) for chosen in ((0, n.dy), (n.dy, 0))]
    totals = [n.b.op(std.ReduceSum, part, keepdims=0).reshape(1) for part in parts]
    return None, None, n.b.concat(totals, 0).cast(n.dy.dtype)


@differentiates(std.TensorScatter)
def _tensor_scatter(op: std.TensorScatter, n: Adjoint) -> Gradients:
    """What is overwritten has no gradient; updates find theirs where their numbers went."""
    data, updates = n.x(), n.x(1)

    def written(into: Expr, what: Expr) -> Expr:
        return n.again([into, what, *op.node.inputs[2:]])

    found = None
    if n.needs(1):
        size = n.b.op(std.Size, updates).reshape(1)
        nowhere = n.b.op(std.Expand, size, shape_of(data))
        numbers = written(nowhere, reshape_to(up_to(n.b, size), shape_of(updates)))
        total = add_rows(widened(n.dy).reshape(-1, 1), numbers.reshape(-1), size)
        found = reshaped_like(total.cast(updates.dtype), updates)
    return written(n.dy, n.b.zeros_like(updates)) if n.needs(0) else None, found


@differentiates(std.ScatterElements, std.ScatterND)
def _scatter(op: std.Scatter, n: Adjoint) -> Gradients:
    """By reduction; updates look up at their places what concerns the data there."""
    dy, reduction = n.dy, op.reduction
    if reduction == "none":
        kept = _with_operands(n, dy, n.b.zeros_like(n.x(2))) if n.needs(0) else None
        return kept, None, _found(op, n, dy) if n.needs(2) else None
    if reduction == "add":
        return dy, None, _found(op, n, dy) if n.needs(2) else None
    if reduction == "mul":
        return _products(op, n)
    if reduction in ("max", "min"):
        return _extremes(op, n)
    raise n.unsupported("reduction, for the gradient,", "none, add, mul, max or min", reduction)


def _products(op: std.Scatter, n: Adjoint) -> Gradients:
    """Each factor's gradient is the product of the others, of which a zero is one that nothing may be divided by.

    Zeros are factors of their own, by their sum at each place: it is zero and has their gradients, so that gradients of
    this are right, too. Those of these again are not where a place has three zeros or more.
    """
    data, updates = n.x(), n.x(2)
    ones = n.b.op(std.Expand, data.like(1), shape_of(data))
    if not n.needs(2):
        return n.dy * _with_operands(n, ones, updates), None, None
    zero, nothing = updates.equals(0), n.b.zeros_like(data)
    others = n.b.where(zero, 1, updates)
    whole = _with_operands(n, ones, others)
    count = _with_operands(n, nothing, zero.cast(updates.dtype), reduction="add")
    rest = _with_operands(n, nothing, n.b.where(zero, updates, 0), reduction="add")
    product = n.b.where(count > 0, n.b.where(count > 1, 0, whole * rest), whole)
    # For a zero: the product of all factors other than zeros, times the other zero if there is one.
    own, theirs = _found(op, n, rest) - updates, _found(op, n, count)
    share = _found(op, n, n.dy * data * whole) * n.b.where(theirs > 1, n.b.where(theirs > 2, 0, own), 1)
    return n.dy * product, None, n.b.where(zero, share, _found(op, n, n.dy * data * product) / others)


def _extremes(op: std.Scatter, n: Adjoint) -> Gradients:
    """Equal shares of the data and the updates that are the result."""
    data, updates, y = n.x(), n.x(2), n.y()
    dy = widened(n.dy)
    own = data.equals(y).cast(dy.dtype)
    theirs = updates.equals(_found(op, n, y)).cast(dy.dtype)
    shares = dy / _with_operands(n, own, theirs, reduction="add")
    return own * shares, None, theirs * _found(op, n, shares) if n.needs(2) else None


def _with_operands(n: Adjoint, data: Expr, updates: Expr, **changed: str) -> Expr:
    """The same scatter of other updates into other data."""
    return n.again([data, n.op.node.inputs[1], updates], **changed)


def _found(op: std.Scatter, n: Adjoint, data: Expr) -> Expr:
    """What data have at the places of the updates."""
    if isinstance(op, std.ScatterND):
        return n.b.op(std.GatherND, data, n.x(1))
    return n.b.op(std.GatherElements, data, n.x(1), axis=op.attribute("axis", 0))
