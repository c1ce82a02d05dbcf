"""Definitions of TensorFlow's ops on matrices, the last two axes of an array: equations, determinants, factors.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, agree, broadcast_shapes
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import FLOATS


class _Square(OpDef, abstract=True):
    class Types:
        T = FLOATS[2:]

    class Inputs:
        input = operand("*S M M")


class Cholesky(_Square):
    """The lower triangle l of l l^T, from a matrix's lower triangle; NaN where the matrix is not positive definite."""

    class Outputs:
        output = operand("*S M M")


class MatrixInverse(_Square):
    """The inverse of a matrix, or of its transpose."""

    class Outputs:
        output = operand("*S M M")

    class Attrs:
        adjoint = attr(bool, False)


class MatrixDeterminant(_Square):
    """The determinant."""

    class Outputs:
        output = operand("*S")


class LogMatrixDeterminant(_Square):
    """The determinant's sign, and the logarithm of its magnitude."""

    class Outputs:
        sign = operand("*S")
        log_abs_determinant = operand("*S")


class MatrixSolve(OpDef):
    """The x of matrix x = rhs, or of its transpose."""

    class Types:
        T = FLOATS[2:]

    class Inputs:
        matrix = operand("*S M M")
        rhs = operand("*S M K")

    class Outputs:
        output = operand("*S M K")

    class Attrs:
        adjoint = attr(bool, False)


class MatrixTriangularSolve(OpDef):
    """The x of matrix x = rhs, or of its transpose, where one triangle is read; axes before the last two broadcast."""

    class Types:
        T = FLOATS[2:]

    class Inputs:
        matrix = operand(None)
        rhs = operand(None)

    class Outputs:
        output = operand(None)

    class Attrs:
        lower = attr(bool, True)
        adjoint = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The matrices are square and have as many rows as the right-hand sides."""
        cls.output_infos(call)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The shape of the right-hand sides, for each matrix."""
        matrix, rhs = (call.operands[name].shape for name in ("matrix", "rhs"))
        for name, shape in (("matrix", matrix), ("rhs", rhs)):
            if shape is not None and len(shape) < 2:
                raise call.error(name, "rank 2 or more", f"rank {len(shape)}")
        if matrix is None or rhs is None:
            return [TensorInfo(call.types.get("T"), None)]
        if not agree(matrix[-1:], matrix[-2:-1]):
            raise call.error("matrix", "square matrices", f"shape {list(matrix)}")
        if not agree(matrix[-1:], rhs[-2:-1]):
            raise call.error("rhs", f"{matrix[-1]} rows (as matrix)", f"shape {list(rhs)}")
        batch = broadcast_shapes(matrix[:-2], rhs[:-2])
        if batch is None:
            what = f"axes before the last two that broadcast with {list(matrix)} (matrix)"
            raise call.error("rhs", what, f"shape {list(rhs)}")
        return [TensorInfo(call.types.get("T"), (*batch, *rhs[-2:]))]


class Qr(OpDef):
    """Orthonormal columns q and an upper triangle r with q r = input, by reflections; signs are LAPACK's.

    Of a matrix of m rows and n columns q has m columns where `full_matrices`, else the smaller of m and n.
    """

    class Types:
        T = FLOATS[2:]

    class Inputs:
        input = operand(None)

    class Outputs:
        q = operand(None)
        r = operand(None)

    class Attrs:
        full_matrices = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operand holds matrices."""
        cls.output_infos(call)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Shapes of the two factors."""
        shape, dtype = call.operands["input"].shape, call.types.get("T")
        if shape is None:
            return [TensorInfo(dtype, None), TensorInfo(dtype, None)]
        if len(shape) < 2:
            raise call.error("input", "rank 2 or more", f"rank {len(shape)}")
        *batch, rows, columns = shape
        inner: Dim | None = rows
        if not call.attributes["full_matrices"] and rows != columns:
            inner = min(rows, columns) if isinstance(rows, int) and isinstance(columns, int) else None
        return [TensorInfo(dtype, (*batch, rows, inner)), TensorInfo(dtype, (*batch, inner, columns))]
