"""Gradients of matrix products and of Einstein's summation."""

from __future__ import annotations

import functools
import operator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr
from lstm_lower.graph.standard.networks import Equation
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    differentiates,
    reshaped_like,
    shape_of,
    summed,
    unbroadcast,
)
from lstm_lower.passes.gradients.rules.arrays import around


@differentiates(std.MatMul)
def _matmul(op: std.MatMul, b: Builder, dys: Cotangents) -> Gradients:
    """A' dY and dY B', of matrices; a vector is a matrix of one row or column."""
    left, right, dy = b.operand(op), b.operand(op, 1), dys[0]
    if op.rank(0) is None and op.rank(1) == 2:
        return _times_matrix(op, b, dys)
    if op.rank(0) is None or op.rank(1) is None:
        return _of_open_ranks(op, b, dys)
    ranks = op.known_rank(0), op.known_rank(1)
    if ranks[0] == 1:
        left, dy = left.unsqueeze(0), dy.unsqueeze(-1) if ranks[1] == 1 else dy.unsqueeze(-2)
    if ranks[1] == 1:
        right, dy = right.unsqueeze(1), dy if ranks[0] == 1 else dy.unsqueeze(-1)
    if ranks[0] == ranks[1] == 1:
        dy = dys[0].reshape(1, 1)
    found: list[Expr | None] = [None, None]
    if dys.needs(0):
        found[0] = reshaped_like(unbroadcast(dy @ _swapped(right), left), b.operand(op))
    if dys.needs(1):
        if len(right.shape or ()) == 2 and len(left.shape or ()) > 2:
            # One product over all batches rather than a sum of products.
            columns = [reshape_to(x, _rows(x)) for x in (left, dy)]
            found[1] = reshaped_like(columns[0].mT @ columns[1], b.operand(op, 1))
        else:
            found[1] = reshaped_like(unbroadcast(_swapped(left) @ dy, right), b.operand(op, 1))
    return found


def _times_matrix(op: std.Standard, b: Builder, dys: Cotangents) -> Gradients:
    """Of rows, however they are arranged."""
    rows, dy = (reshape_to(x, x.builder.sizes(around(x, -1)[:2])) for x in (b.operand(op), dys[0]))
    da = reshaped_like(dy @ b.operand(op, 1).mT, b.operand(op)) if dys.needs(0) else None
    return da, reshaped_like(rows.mT @ dy, b.operand(op, 1)) if dys.needs(1) else None


def _of_open_ranks(op: std.Standard, b: Builder, dys: Cotangents) -> Gradients:
    """As of known ranks; which operand is a vector shows at run time."""
    sizes = [shape_of(b.operand(op)), shape_of(b.operand(op, 1))]
    # The number of axes that a vector lacks.
    lacking = [own.sizes().equals(b.ints(1)).cast(ir.DataType.INT64) for own in sizes]
    ones = [b.fill(1, count, ir.DataType.INT64) for count in lacking]
    left, right = b.concat([ones[0], sizes[0]], 0), b.concat([sizes[1], ones[1]], 0)
    made = shape_of(dys[0])
    batches = made.slice(0, made.sizes() - 2 + lacking[0] + lacking[1], axis=0)
    product = b.concat([batches, left.slice(-2, -1, axis=0), right.slice(-1, END, axis=0)], 0)
    x, y, dy = (reshape_to(*pair) for pair in ((b.operand(op), left), (b.operand(op, 1), right), (dys[0], product)))
    dx = reshaped_like(unbroadcast(dy @ _swapped_at_run_time(y), x), b.operand(op)) if dys.needs(0) else None
    return dx, reshaped_like(unbroadcast(_swapped_at_run_time(x) @ dy, y), b.operand(op, 1)) if dys.needs(1) else None


def _swapped_at_run_time(x: Expr) -> Expr:
    """Matrices transposed, however many axes they stand along."""
    b, sizes = x.builder, shape_of(x)
    ends = [sizes.slice(-2, -1, axis=0), sizes.slice(-1, END, axis=0)]
    count = around(x, -2)[0]
    turned = reshape_to(x, b.sizes([count, *ends])).transpose(0, 2, 1)
    return reshape_to(turned, b.concat([sizes.slice(0, -2, axis=0), ends[1], ends[0]], 0))


@differentiates(std.Gemm)
def _gemm(op: std.Gemm, b: Builder, dys: Cotangents) -> Gradients:
    """Y = alpha X' W' + beta C."""
    x, w, dy = b.operand(op), b.operand(op, 1), dys[0]
    da = db = dc = None
    if dys.needs(0):
        da = _gemm_of(w, dy, op.trans_b, 1, op.alpha) if op.trans_a else _gemm_of(dy, w, 0, 1 - op.trans_b, op.alpha)
    if dys.needs(1):
        db = _gemm_of(dy, x, 1, op.trans_a, op.alpha) if op.trans_b else _gemm_of(x, dy, 1 - op.trans_a, 0, op.alpha)
    if dys.needs(2):
        dc = unbroadcast(dy if op.beta == 1 else dy * op.beta, b.operand(op, 2))
    return da, db, dc


def _gemm_of(a: Expr, b: Expr, trans_a: int, trans_b: int, alpha: float) -> Expr:
    scaling = {} if alpha == 1 else {"alpha": alpha}
    return a.builder.op(std.Gemm, a, b, transA=trans_a, transB=trans_b, **scaling)


def _swapped(x: Expr) -> Expr:
    """Matrices transposed."""
    rank = len(x.shape or ())
    return x.transpose(*range(rank - 2), rank - 1, rank - 2)


def _rows(x: Expr) -> Expr:
    """The shape in which all but the last axis are rows; of no columns their number would not follow."""
    sizes = [x.size(axis) for axis in range(len(x.shape or ()))]
    if isinstance(sizes[-1], int) and sizes[-1]:
        return x.builder.sizes([-1, sizes[-1]])
    return x.builder.sizes([functools.reduce(operator.mul, sizes[:-1]), sizes[-1]])


@differentiates(std.Einsum)
def _einsum(op: std.Einsum, b: Builder, dys: Cotangents) -> Gradients:
    equation = op.equation
    if equation is None:
        unknown = next((x for i, x in enumerate(op.inputs) if op.rank(i) is None), None)
        got = "others" if unknown is None else std.undeclared(unknown)
        raise op.unsupported("inputs, for their gradients,", "known ranks, those of the equation", got)
    if not set(equation.spread) <= set(equation.output):
        raise op.unsupported("equation, for the gradient,", "an ellipsis in its result too", "none")
    terms = equation.inputs
    operands = [_of_rank(b.operand(op, i), len(term)) for i, term in enumerate(terms)]
    found: list[Expr | None] = []
    for i, own in enumerate(terms):
        if not dys.needs(i):
            found.append(None)
            continue
        others = [(term, operands[j]) for j, term in enumerate(terms) if j != i]
        dy, x = _of_rank(dys[0], len(equation.output)), operands[i]
        dx = _contracted(b, equation, [(equation.output, dy), *others], own)
        found.append(unbroadcast(_on_diagonal(dx, x, own), x).cast(x.dtype))
    return found


def _of_rank(x: Expr, rank: int) -> Expr:
    """The same value, whose rank the equation tells."""
    return x if x.shape is not None else x.builder.set_shape(x, [None] * rank)


def _contracted(b: Builder, equation: Equation, factors: list[tuple[str, Expr]], own: str) -> Expr:
    """The product of the factors summed to the labels of an operand, each once; of those that no factor has, size 1."""
    once = "".join(dict.fromkeys(own))
    tensors = [(term, widened(x)) for term, x in factors if term]
    # An ellipsis stands in front, with all its axes: operands may be broadcast along them.
    present = equation.spread
    present += "".join(c for c in once if c not in present and any(c in term for term, _ in tensors))
    total: Expr | None = None
    if [term for term, _ in tensors] == [present]:
        total = tensors[0][1]
    elif tensors:
        text = ",".join(equation.written(term) for term, _ in tensors) + "->" + equation.written(present)
        total = b.op(std.Einsum, *(x for _, x in tensors), equation=text)
    for factor in (widened(x) for term, x in factors if not term):
        total = factor if total is None else total * factor
    assert total is not None
    beyond = [axis for axis, label in enumerate(present) if label not in once]
    total, present = summed(total, beyond), "".join(label for label in present if label in once)
    missing = "".join(label for label in once if label not in present)
    total = total.unsqueeze(*range(len(present), len(once))) if missing else total
    return b.transpose(total, [(present + missing).index(label) for label in once])


def _on_diagonal(dx: Expr, x: Expr, own: str) -> Expr:
    """What has an axis for each label as what has the operand's axes: repeated labels are a diagonal."""
    b = dx.builder
    repeated = [axis for axis, label in enumerate(own) if label in own[:axis]]
    dx = dx.unsqueeze(*repeated)
    for axis in repeated:
        first = own.index(own[axis])
        places = []
        for at in (first, axis):
            numbers, behind = up_to(b, x.size(at)), len(own) - 1 - at
            places.append(numbers.unsqueeze(*range(1, behind + 1)))
        dx = b.where(b.op(std.Equal, *places), dx, 0)
    return dx if b.facts.same_shape(dx.value, x.value) else _broadcast_to(dx, x, own)


def _broadcast_to(dx: Expr, x: Expr, own: str) -> Expr:
    """Repeated along the axes that the operand was summed along alone, which have size 1 here."""
    alone = [axis for axis, dim in enumerate(dx.shape or ()) if dim == 1 and (x.shape or ())[axis] != 1]
    if not alone:
        return dx
    sizes = [x.size(axis) if axis in alone else 1 for axis in range(len(own))]
    return dx.builder.op(std.Expand, dx, dx.builder.sizes(sizes))
