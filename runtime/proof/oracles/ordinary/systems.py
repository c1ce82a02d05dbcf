"""Float64 oracles of systems of equations and determinants: numpy's, which are LAPACK's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


def _oriented(matrix: npt.ArrayLike, *, adjoint: bool) -> Values:
    return np.swapaxes(wide(matrix), -1, -2) if adjoint else wide(matrix)


@oracle("Cholesky")
def cholesky(*, input: npt.ArrayLike) -> dict[str, Values]:
    """The factor of the matrix whose lower triangle this is."""
    low = np.tril(wide(input))
    return {"output": np.linalg.cholesky(low + np.swapaxes(np.tril(low, -1), -1, -2))}


@oracle("MatrixInverse")
def matrix_inverse(*, input: npt.ArrayLike, adjoint: bool = False) -> dict[str, Values]:
    """The inverse."""
    return {"output": np.linalg.inv(_oriented(input, adjoint=adjoint))}


@oracle("MatrixDeterminant")
def matrix_determinant(*, input: npt.ArrayLike) -> dict[str, Values]:
    """The determinant."""
    return {"output": np.asarray(np.linalg.det(wide(input)))}


@oracle("LogMatrixDeterminant")
def log_matrix_determinant(*, input: npt.ArrayLike) -> dict[str, Values]:
    """Its sign and logarithm."""
    sign, logarithm = np.linalg.slogdet(wide(input))
    return {"sign": np.asarray(sign), "log_abs_determinant": np.asarray(logarithm)}


@oracle("MatrixSolve")
def matrix_solve(*, matrix: npt.ArrayLike, rhs: npt.ArrayLike, adjoint: bool = False) -> dict[str, Values]:
    """The solution."""
    return {"output": np.linalg.solve(_oriented(matrix, adjoint=adjoint), wide(rhs))}


@oracle("MatrixTriangularSolve")
def matrix_triangular_solve(
    *, matrix: npt.ArrayLike, rhs: npt.ArrayLike, lower: bool = True, adjoint: bool = False
) -> dict[str, Values]:
    """The solution for one triangle."""
    triangle = np.tril(wide(matrix)) if lower else np.triu(wide(matrix))
    return {"output": np.linalg.solve(_oriented(triangle, adjoint=adjoint), wide(rhs))}


@oracle("Qr")
def qr(*, input: npt.ArrayLike, full_matrices: bool = False) -> dict[str, Values]:
    """LAPACK's factors."""
    q, r = np.linalg.qr(wide(input), mode="complete" if full_matrices else "reduced")
    return {"q": q, "r": r}
