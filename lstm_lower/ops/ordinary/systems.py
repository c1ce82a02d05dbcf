"""Definitions of TensorFlow's ops on matrices, the last two axes of an array: equations, determinants, factors.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import agree, broadcast_shapes
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import PAIRED, RawOp


class Cholesky(RawOp, input="*S M M", T=PAIRED):
    """The lower triangle l of l l^T, from a matrix's lower triangle; NaN where the matrix is not positive definite."""


class MatrixInverse(RawOp, input="*S M M", T=PAIRED):
    """The inverse of a matrix, or of its transpose."""


class MatrixDeterminant(RawOp, input="*S M M", T=PAIRED):
    """The determinant."""


class LogMatrixDeterminant(RawOp, input="*S M M", T=PAIRED):
    """The determinant's sign, and the logarithm of its magnitude."""


class MatrixSolve(RawOp, matrix="*S M M", rhs="*S M K", T=PAIRED):
    """The x of matrix x = rhs, or of its transpose."""


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


class Qr(RawOp, input="*S M N", T=PAIRED):
    """Orthonormal columns q and an upper triangle r with q r = input, by reflections; signs are LAPACK's.

    Of a matrix of m rows and n columns q has m columns where `full_matrices`, else the smaller of m and n.
    """
