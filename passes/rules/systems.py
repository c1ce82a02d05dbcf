"""Lowering of systems of equations and determinants by elimination, and of factors by reflections."""

from __future__ import annotations

from lstm_lower.dims import agree, broadcast_shapes
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import PAIRED, RawOp
from lstm_lower.passes.formulas import linear_algebra
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


def _transposed(matrix: Expr, *, where: bool) -> Expr:
    rank = len(matrix.shape or ())
    return matrix.transpose(*range(rank - 2), rank - 1, rank - 2) if where else matrix


class Cholesky(RawOp, input="*S M M", T=PAIRED):
    """The lower triangle l of l l^T, from a matrix's lower triangle; NaN where the matrix is not positive definite."""


@lowers(Cholesky, repeatable=True)
def cholesky(n: Node, _: Builder) -> Expr:
    """Columns, which come first."""
    rank = rank_of(n, "input", n.input)
    return linear_algebra.cholesky(n.input).transpose(*range(1, rank), 0)


class MatrixInverse(RawOp, input="*S M M", T=PAIRED):
    """The inverse of a matrix, or of its transpose."""


@lowers(MatrixInverse, repeatable=True)
def matrix_inverse(n: Node, b: Builder) -> Expr:
    """The solution for the columns of an identity."""
    rank_of(n, "input", n.input)
    numbers = up_to(b, n.input.size(-1))
    identity = numbers.equals(numbers.unsqueeze(1)).cast(n.input.dtype) + b.zeros_like(n.input)
    return _solved(_transposed(n.input, where=n.adjoint), identity)


class MatrixSolve(RawOp, matrix="*S M M", rhs="*S M K", T=PAIRED):
    """The x of matrix x = rhs, or of its transpose."""


@lowers(MatrixSolve, repeatable=True)
def matrix_solve(n: Node, _: Builder) -> Expr:
    """Elimination with swaps."""
    rank_of(n, "matrix", n.matrix)
    return _solved(_transposed(n.matrix, where=n.adjoint), n.rhs)


def _solved(matrix: Expr, right: Expr) -> Expr:
    _, solved = linear_algebra.eliminate(matrix, right, pivoting=True)
    assert solved is not None
    return solved


class MatrixTriangularSolve(RawOp, T=PAIRED):
    """The x of matrix x = rhs, or of its transpose, where one triangle is read; axes before the last two broadcast."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The matrices are square and have as many rows as the right-hand sides."""
        matrix, rhs = (call.operands[name].shape for name in ("matrix", "rhs"))
        for name, shape in (("matrix", matrix), ("rhs", rhs)):
            if shape is not None and len(shape) < 2:
                raise call.error(name, "rank 2 or more", f"rank {len(shape)}")
        if matrix is None or rhs is None:
            return
        if not agree(matrix[-1:], matrix[-2:-1]):
            raise call.error("matrix", "square matrices", f"shape {list(matrix)}")
        if not agree(matrix[-1:], rhs[-2:-1]):
            raise call.error("rhs", f"{matrix[-1]} rows (as matrix)", f"shape {list(rhs)}")
        if broadcast_shapes(matrix[:-2], rhs[:-2]) is None:
            what = f"axes before the last two that broadcast with {list(matrix)} (matrix)"
            raise call.error("rhs", what, f"shape {list(rhs)}")


@lowers(MatrixTriangularSolve, repeatable=True)
def matrix_triangular_solve(n: Node, b: Builder) -> Expr:
    """Elimination without swaps."""
    matrix, right = n.matrix, n.rhs
    for name in ("matrix", "rhs"):
        rank_of(n, name, getattr(n, name))
    if (matrix.shape or ())[:-2] != (right.shape or ())[:-2] or None in (matrix.shape or ())[:-2]:
        # Both get all axes before the last two.
        matrix, right = (
            x + b.zeros_like(other.slice(0, 1, axis=len(other.shape or ()) - 1))
            for x, other in ((n.matrix, n.rhs), (n.rhs, n.matrix))
        )
    matrix = _transposed(matrix, where=n.adjoint)
    return linear_algebra.triangular_solve(matrix, right, lower=n.lower != n.adjoint)


class MatrixDeterminant(RawOp, input="*S M M", T=PAIRED):
    """The determinant."""


@lowers(MatrixDeterminant, repeatable=True)
def matrix_determinant(n: Node, _: Builder) -> Expr:
    """The product of the pivots."""
    rank_of(n, "input", n.input)
    pivots = linear_algebra.eliminate(n.input, None, pivoting=True)[0]
    return pivots.reduce(std.ReduceProd, 0, keepdims=False)


class LogMatrixDeterminant(RawOp, input="*S M M", T=PAIRED):
    """The determinant's sign, and the logarithm of its magnitude."""


@lowers(LogMatrixDeterminant, repeatable=True)
def log_matrix_determinant(n: Node, b: Builder) -> list[Expr]:
    """The product of the pivots' signs, and the sum of the logarithms of their magnitudes."""
    rank_of(n, "input", n.input)
    pivots, _ = linear_algebra.eliminate(n.input, None, pivoting=True)
    logarithm = pivots.abs().log()
    return [
        b.op(std.Sign, pivots).reduce(std.ReduceProd, 0, keepdims=False),
        logarithm.sum(0),
    ]


class Qr(RawOp, input="*S M N", T=PAIRED):
    """Orthonormal columns q and an upper triangle r with q r = input, by reflections; signs are LAPACK's.

    Of a matrix of m rows and n columns q has m columns where `full_matrices`, else the smaller of m and n.
    """


@lowers(Qr, repeatable=True)
def qr(n: Node, _: Builder) -> list[Expr]:
    """Householder's reflections."""
    rank_of(n, "input", n.input)
    q, r = linear_algebra.qr(n.input, full=n.full_matrices)
    return [q, r]
