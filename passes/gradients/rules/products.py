"""Gradients of matrix products."""

from __future__ import annotations

import functools
import operator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Expr
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.gradients.registry import (
    Adjoint,
    Gradients,
    differentiates,
    reshaped_like,
    shape_of,
    unbroadcast,
)
from lstm_lower.passes.gradients.rules.moving import around


@differentiates(std.MatMul)
def _matmul(op: std.MatMul, n: Adjoint) -> Gradients:
    """A' dY and dY B', of matrices; a vector is a matrix of one row or column."""
    a, b, dy = n.x(0), n.x(1), n.dy
    if op.rank(0) is None and op.rank(1) == 2:
        return _times_matrix(n)
    if op.rank(0) is None or op.rank(1) is None:
        return _of_open_ranks(n)
    ranks = n.rank(0), n.rank(1)
    if ranks[0] == 1:
        a, dy = a.unsqueeze(0), dy.unsqueeze(-1) if ranks[1] == 1 else dy.unsqueeze(-2)
    if ranks[1] == 1:
        b, dy = b.unsqueeze(1), dy if ranks[0] == 1 else dy.unsqueeze(-1)
    if ranks[0] == ranks[1] == 1:
        dy = n.dy.reshape(1, 1)
    found: list[Expr | None] = [None, None]
    if n.needs(0):
        found[0] = reshaped_like(unbroadcast(dy @ _swapped(b), a), n.x(0))
    if n.needs(1):
        if len(b.shape or ()) == 2 and len(a.shape or ()) > 2:
            # One product over all batches rather than a sum of products.
            columns = [reshape_to(x, _rows(x)) for x in (a, dy)]
            found[1] = reshaped_like(columns[0].mT @ columns[1], n.x(1))
        else:
            found[1] = reshaped_like(unbroadcast(_swapped(a) @ dy, b), n.x(1))
    return found


def _times_matrix(n: Adjoint) -> Gradients:
    """Of rows, however they are arranged."""
    rows, dy = (reshape_to(x, x.builder.sizes(around(x, -1)[:2])) for x in (n.x(), n.dy))
    da = reshaped_like(dy @ n.x(1).mT, n.x()) if n.needs(0) else None
    return da, reshaped_like(rows.mT @ dy, n.x(1)) if n.needs(1) else None


def _of_open_ranks(n: Adjoint) -> Gradients:
    """As of known ranks; which operand is a vector shows at run time."""
    b = n.b
    sizes = [shape_of(n.x(0)), shape_of(n.x(1))]
    # The number of axes that a vector lacks.
    lacking = [own.sizes().equals(b.ints(1)).cast(ir.DataType.INT64) for own in sizes]
    ones = [b.fill(1, count, ir.DataType.INT64) for count in lacking]
    left, right = b.concat([ones[0], sizes[0]], 0), b.concat([sizes[1], ones[1]], 0)
    made = shape_of(n.dy)
    batches = made.slice(0, made.sizes() - 2 + lacking[0] + lacking[1], axis=0)
    product = b.concat([batches, left.slice(-2, -1, axis=0), right.slice(-1, END, axis=0)], 0)
    x, y, dy = (reshape_to(*pair) for pair in ((n.x(0), left), (n.x(1), right), (n.dy, product)))
    dx = reshaped_like(unbroadcast(dy @ _swapped_at_run_time(y), x), n.x(0)) if n.needs(0) else None
    return dx, reshaped_like(unbroadcast(_swapped_at_run_time(x) @ dy, y), n.x(1)) if n.needs(1) else None


def _swapped_at_run_time(x: Expr) -> Expr:
    """Matrices transposed, however many axes they stand along."""
    b, sizes = x.builder, shape_of(x)
    ends = [sizes.slice(-2, -1, axis=0), sizes.slice(-1, END, axis=0)]
    count = around(x, -2)[0]
    turned = reshape_to(x, b.sizes([count, *ends])).transpose(0, 2, 1)
    return reshape_to(turned, b.concat([sizes.slice(0, -2, axis=0), ends[1], ends[0]], 0))


@differentiates(std.Gemm)
def _gemm(op: std.Gemm, n: Adjoint) -> Gradients:
    """Y = alpha A' B' + beta C."""
    a, b, dy = n.x(0), n.x(1), n.dy
    da = db = dc = None
    if n.needs(0):
        da = _gemm_of(b, dy, op.trans_b, 1, op.alpha) if op.trans_a else _gemm_of(dy, b, 0, 1 - op.trans_b, op.alpha)
    if n.needs(1):
        db = _gemm_of(dy, a, 1, op.trans_a, op.alpha) if op.trans_b else _gemm_of(a, dy, 1 - op.trans_a, 0, op.alpha)
    if n.needs(2):
        dc = unbroadcast(dy if op.beta == 1 else dy * op.beta, n.x(2))
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
