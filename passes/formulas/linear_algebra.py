"""Linear algebra of matrices of any size, the last two axes of an array of known rank, in loops over their columns."""

from __future__ import annotations

import functools
import math

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat, detached
from lstm_lower.passes.formulas.sizes import at_most, up_to


def cholesky(matrix: Expr) -> Expr:
    """The columns [n, ..., n] of the lower triangle l of l l^T; no number where the matrix is not positive definite.

    Only the matrix's lower triangle is read. Source: Golub and Van Loan, Matrix Computations, 4.2, by outer products.
    """
    b, rank = matrix.builder, len(matrix.shape or ())
    rows = up_to(b, matrix.size(-1))

    def body(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (left,), (k,) = carried, inputs
        column = left.take(k, axis=rank - 1)
        pivot = column.take(k, axis=rank - 2).unsqueeze(rank - 2)
        column = b.where(rows < k, 0, column / pivot.sqrt())
        return [left - column.unsqueeze(rank - 1) * column.unsqueeze(rank - 2)], [column]

    _, (columns,) = b.scan(body, states=[matrix], inputs=[rows])
    return columns


def eliminate(matrix: Expr, right: Expr | None, *, pivoting: bool) -> tuple[Expr, Expr | None]:
    """Pivots [n, ...], and x of a x = b, by the elimination of Gauss and Jordan, with swaps of rows where `pivoting`.

    Source: Golub and Van Loan, Matrix Computations, 3.4.
    """
    b, rank = matrix.builder, len(matrix.shape or ())
    size = matrix.size(-1)
    rows = up_to(b, size)
    whole = matrix if right is None else concat([matrix, right], rank - 1)

    def body(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (left,), (k,) = carried, inputs
        here = rows.equals(k)
        column = left.take(k, axis=rank - 1)
        sign = None
        if pivoting:
            heights = b.where(rows < k, -1, column.abs())
            best = b.op(std.ArgMax, heights, axis=rank - 2, keepdims=1)
            order = b.where(here, best, b.where(rows.equals(best), k, rows))
            column = b.op(std.GatherElements, column, order, axis=rank - 2)
            places = b.op(std.Expand, order.unsqueeze(rank - 1), left.sizes())
            left = b.op(std.GatherElements, left, places, axis=rank - 2)
            sign = b.where(best.squeeze(rank - 2).equals(k), left.like(1), -1)
        pivot = column.take(k, axis=rank - 2)
        row = left.take(k, axis=rank - 2) / pivot.unsqueeze(rank - 2)
        row = row.unsqueeze(rank - 2)
        left = b.where(here.unsqueeze(1), row, left - column.unsqueeze(rank - 1) * row)
        return [left], [pivot if sign is None else pivot * sign]

    (left,), (pivots,) = b.scan(body, states=[whole], inputs=[rows])
    if right is None:
        return pivots, None
    return pivots, left.slice(size, 2**31 - 1, axis=rank - 1)


def triangular_solve(matrix: Expr, right: Expr, *, lower: bool) -> Expr:
    """The x of a x = b where one triangle of a is read: elimination without swaps, of an upper one from its end."""
    b, rank = matrix.builder, len(matrix.shape or ())
    numbers = up_to(b, matrix.size(-1))
    backwards = numbers.builder.sizes([matrix.size(-1)]) - 1 - numbers
    if not lower:
        for axis in (rank - 2, rank - 1):
            matrix = matrix.take(backwards, axis=axis)
        right = right.take(backwards, axis=rank - 2)
    triangle = b.where(numbers > numbers.unsqueeze(1), 0, matrix)
    _, solved = eliminate(triangle, right, pivoting=False)
    assert solved is not None
    return solved if lower else solved.take(backwards, axis=rank - 2)


# Factors by Householder's reflections.


def qr(matrix: Expr, *, full: bool) -> tuple[Expr, Expr]:
    """Orthonormal columns and an upper triangle, whose product is the matrix; `full` gives as many columns as rows.

    Source: Golub and Van Loan, Matrix Computations, 5.2, with the signs of LAPACK's `geqrf`, which leaves a column as
    it is that is zero below the diagonal. Here such a column is reflected, too, and its sign turned back: the result is
    the same, and can be differentiated.
    """
    b, rank = matrix.builder, len(matrix.shape or ())
    height, width = matrix.size(-2), matrix.size(-1)
    smaller = at_most(height, width)
    rows, steps = up_to(b, height), up_to(b, smaller)
    least = matrix.like(float(np.finfo(matrix.dtype.numpy()).tiny))

    def reduce(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (left,), (k,) = carried, inputs
        here = rows.equals(k)
        column = b.op(std.Gather, left, k, axis=rank - 1)
        # Squares of large and of small numbers leave the dtype's range; reflections do not depend on the length.
        largest = b.where(rows < k, 0, column.abs()).reduce(std.ReduceMax, rank - 2)
        scale = detached(b.where(largest > 0, largest, 1))
        first = b.op(std.Gather, column, k, axis=rank - 2).unsqueeze(rank - 2) / scale
        below = b.where(rows > k, column, 0) / scale
        rest, square = (below * below).sum(rank - 2, keepdims=True), first * first
        flat = ~(rest > least)
        nothing = flat & ~(square > least)
        # A root of 0 has no derivative.
        length = b.where(flat, first.abs(), b.where(flat, 1, square + rest).sqrt())
        apart = first + b.where(first < 0, -length, length)
        vector = b.where(here, 1, below / b.where(nothing, 1, apart))
        factor = b.where(nothing, 0, 2 / (vector * vector).sum(rank - 2, keepdims=True))
        signs = b.where(here, b.where(flat, b.where(nothing, first.like(1), -1), 1), 1)
        left = reflected(left, vector, factor) * signs.unsqueeze(rank - 1)
        return [left], [vector, factor, signs]

    def build(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (columns,), (vector, factor, signs) = carried, inputs
        return [reflected(columns * signs.unsqueeze(rank - 1), vector, factor)], []

    (triangle,), reflections = b.scan(reduce, states=[matrix], inputs=[steps])
    places = up_to(b, height if full else smaller)
    identity = rows.unsqueeze(1).equals(places).cast(matrix.dtype)
    start = identity + b.zeros_like(matrix.slice(0, 1, axis=rank - 1))
    (q,), _ = b.scan(build, states=[start], inputs=reflections, reverse=True)
    r = triangle if full else triangle.slice(0, smaller, axis=rank - 2)
    return q, b.where(places.unsqueeze(1) > up_to(b, width), 0, r)


def reflected(matrix: Expr, vector: Expr, factor: Expr) -> Expr:
    """The matrix [..., rows, columns] without `factor` [..., 1] times its part along a vector [..., rows]."""
    rank = len(matrix.shape or ())
    along = vector.unsqueeze(rank - 2) @ matrix
    return matrix - vector.unsqueeze(rank - 1) * (factor.unsqueeze(rank - 1) * along)


def product(vectors: Expr, shares: Expr) -> Expr:
    """The first columns [..., m, n] of a product of reflections, by vectors [..., m, n] and shares [..., n] of them."""
    b, rank = vectors.builder, len(vectors.shape or ())
    each = shares.transpose(rank - 2, *range(rank - 2)).unsqueeze(rank - 1)
    rows, columns = (up_to(b, vectors.size(axis)) for axis in (-2, -1))
    unit = b.where(rows.unsqueeze(1).equals(columns), 1, b.zeros_like(vectors))
    (q,), _ = b.scan(
        lambda carried, inputs: ([reflected(carried[0], *inputs)], []),
        states=[unit],
        inputs=[vectors.transpose(rank - 1, *range(rank - 1)), each],
        reverse=True,
    )
    return q


# Functions of matrices.


# The series of exp to this power leaves nothing out in float64 where the norm is at most 1/2.
_POWERS, _BLOCK = 15, 4
# More squarings than these are for numbers whose exp is none.
_SQUARINGS = 64


def exponential(matrix: Expr) -> Expr:
    """The exponential of a matrix, by its series for a matrix that is halved until it is small, and squared as often.

    Source: Moler and Van Loan, Nineteen dubious ways to compute the exponential of a matrix, 2003, method 3.
    """
    b, rank = matrix.builder, len(matrix.shape or ())
    norm = detached(matrix.abs().sum(rank - 2, keepdims=True).reduce(std.ReduceMax, rank - 1))
    large = norm > 0.5
    doublings = b.op(std.Ceil, b.where(large, norm, 1).log() / math.log(2)) + 1
    count = b.where(large, doublings.minimum(_SQUARINGS), 0)
    small = matrix * 2**-count
    numbers = up_to(b, matrix.size(-1))
    unit = numbers.unsqueeze(1).equals(numbers).cast(matrix.dtype)
    powers = [unit, small]
    while len(powers) <= _BLOCK:
        powers.append(powers[-1] @ small)

    def block(start: int) -> Expr:
        terms = [powers[k] * (1 / math.factorial(start + k)) for k in range(_BLOCK)]
        return functools.reduce(lambda total, term: total + term, terms)

    starts = range(_POWERS + 1 - _BLOCK, -1, -_BLOCK)
    series = functools.reduce(lambda total, start: total @ powers[_BLOCK] + block(start), starts[1:], block(starts[0]))
    most = count.reshape(-1).reduce(std.ReduceMax, 0).maximum(1).cast(ir.DataType.INT64)

    def square(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (x,), (k,) = carried, inputs
        return [b.where(k.cast(count.dtype) < count, x @ x, x)], []

    (result,), _ = b.scan(square, states=[series], inputs=[up_to(b, most)])
    return result
