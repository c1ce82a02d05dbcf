"""Elimination in matrices of any size, the last two axes of an array of known rank, in loops over their columns."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat
from lstm_lower.passes.formulas.sizes import up_to


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
