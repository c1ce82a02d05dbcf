"""Gradients of matrix products."""

from __future__ import annotations

import functools
import operator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.gradients.registry import (
    Cotangents,
    Gradients,
    differentiates,
    reshaped_like,
    shape_of,
    unbroadcast,
)
from lstm_lower.passes.gradients.rules.moving import around


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
