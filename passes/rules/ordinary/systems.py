"""Lowering of systems of equations and determinants by elimination, and of factors by reflections."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.systems import (
    Cholesky,
    LogMatrixDeterminant,
    MatrixDeterminant,
    MatrixInverse,
    MatrixSolve,
    MatrixTriangularSolve,
    Qr,
)
from lstm_lower.passes.formulas import elimination, reflections
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.indexing import rank_of
from lstm_lower.passes.rules.registry import Node, lowers


def _transposed(matrix: Expr, *, where: bool) -> Expr:
    rank = len(matrix.shape or ())
    return matrix.transpose(*range(rank - 2), rank - 1, rank - 2) if where else matrix


@lowers(Cholesky, repeatable=True)
def cholesky(n: Node) -> dict[str, Expr]:
    """Columns, which come first."""
    rank = rank_of(n, "input", n.input)
    return {"output": elimination.cholesky(n.input).transpose(*range(1, rank), 0)}


@lowers(MatrixInverse, repeatable=True)
def matrix_inverse(n: Node) -> dict[str, Expr]:
    """The solution for the columns of an identity."""
    b = n.builder
    rank_of(n, "input", n.input)
    numbers = up_to(b, n.input.size(-1))
    identity = numbers.equals(numbers.unsqueeze(1)).cast(n.input.dtype) + b.zeros_like(n.input)
    return {"output": _solved(_transposed(n.input, where=n.adjoint), identity)}


@lowers(MatrixSolve, repeatable=True)
def matrix_solve(n: Node) -> dict[str, Expr]:
    """Elimination with swaps."""
    rank_of(n, "matrix", n.matrix)
    return {"output": _solved(_transposed(n.matrix, where=n.adjoint), n.rhs)}


def _solved(matrix: Expr, right: Expr) -> Expr:
    _, solved = elimination.eliminate(matrix, right, pivoting=True)
    assert solved is not None
    return solved


@lowers(MatrixTriangularSolve, repeatable=True)
def matrix_triangular_solve(n: Node) -> dict[str, Expr]:
    """Elimination without swaps."""
    b, matrix, right = n.builder, n.matrix, n.rhs
    for name in ("matrix", "rhs"):
        rank_of(n, name, getattr(n, name))
    if (matrix.shape or ())[:-2] != (right.shape or ())[:-2] or None in (matrix.shape or ())[:-2]:
        # Both get all axes before the last two.
        matrix, right = (
            x + b.zeros_like(other.slice(0, 1, axis=len(other.shape or ()) - 1))
            for x, other in ((n.matrix, n.rhs), (n.rhs, n.matrix))
        )
    matrix = _transposed(matrix, where=n.adjoint)
    return {"output": elimination.triangular_solve(matrix, right, lower=n.lower != n.adjoint)}


@lowers(MatrixDeterminant, repeatable=True)
def matrix_determinant(n: Node) -> dict[str, Expr]:
    """The product of the pivots."""
    rank_of(n, "input", n.input)
    pivots, _ = elimination.eliminate(n.input, None, pivoting=True)
    return {"output": _over_pivots(std.ReduceProd, pivots)}


@lowers(LogMatrixDeterminant, repeatable=True)
def log_matrix_determinant(n: Node) -> dict[str, Expr]:
    """The product of the pivots' signs, and the sum of the logarithms of their magnitudes."""
    b = n.builder
    rank_of(n, "input", n.input)
    pivots, _ = elimination.eliminate(n.input, None, pivoting=True)
    logarithm = pivots.abs().log()
    return {
        "sign": _over_pivots(std.ReduceProd, b.op(std.Sign, pivots)),
        "log_abs_determinant": _over_pivots(std.ReduceSum, logarithm),
    }


def _over_pivots(reduction: type[std.Standard], pivots: Expr) -> Expr:
    b = pivots.builder
    axes = {"axes": [0]} if reduction is std.ReduceProd and b.opset < 18 else {}
    operands = () if axes else (b.ints(0),)
    return b.op(reduction, pivots, *operands, keepdims=0, **axes)


@lowers(Qr, repeatable=True)
def qr(n: Node) -> dict[str, Expr]:
    """Householder's reflections."""
    rank_of(n, "input", n.input)
    q, r = reflections.qr(n.input, full=n.full_matrices)
    return {"q": q, "r": r}
