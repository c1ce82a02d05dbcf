"""Factors of matrices of any size, the last two axes of an array of known rank, by Householder's reflections."""

from __future__ import annotations

import numpy as np

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.formulas.sizes import at_most, up_to


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
