"""Cases of systems of equations and determinants."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.support.gradient_cases import Array
from tests.support.ordinary.case import Case, draw, text

SHAPES = [(1, 1), (4, 4), (2, 3, 3), (2, 1, 5, 5)]
DTYPES = ("float32", "float64")


def _matrix(shape: tuple[int, ...], dtype: str, *, positive: bool = False) -> Array:
    """Matrices far from singular, whose pivots must be looked for."""
    x = draw(shape, "float64", "systems", scale=1)
    if positive:
        return np.asarray(x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])).astype(dtype)
    return np.asarray(x + 3 * np.roll(np.eye(shape[-1]), 1, -1)).astype(dtype)


def cases() -> Iterator[Case]:
    for shape, dtype in product(SHAPES, DTYPES):
        what, x = text(shape, dtype), _matrix(shape, dtype)
        # Only one triangle is read.
        yield Case("Cholesky", what, {"input": _matrix(shape, dtype, positive=True) + np.triu(np.ones_like(x), 1)})
        for op in ("MatrixDeterminant", "LogMatrixDeterminant"):
            yield Case(op, what, {"input": x})
        right = draw((*shape[:-1], 2), dtype, "right")
        for adjoint in (False, True):
            yield Case("MatrixInverse", f"{what}-{adjoint}", {"input": x}, {"adjoint": adjoint})
            yield Case("MatrixSolve", f"{what}-{adjoint}", {"matrix": x, "rhs": right}, {"adjoint": adjoint})
            for lower in (False, True):
                attributes = {"adjoint": adjoint, "lower": lower}
                full = _matrix(shape, dtype, positive=True)
                operands = {"matrix": full, "rhs": right}
                yield Case("MatrixTriangularSolve", text(what, adjoint, lower), {**operands}, attributes)
    for first, second in (((3, 3), (2, 4, 3, 2)), ((4, 1, 3, 3), (2, 3, 1)), ((2, 3, 3), (3, 2))):
        operands = {"matrix": _matrix(first, "float32", positive=True), "rhs": draw(second, "float32", "right")}
        yield Case("MatrixTriangularSolve", text(first, second), {**operands})
    for shape, dtype, full in product((*SHAPES, (5, 2), (2, 7, 3), (2, 5), (3, 1)), DTYPES, (False, True)):
        x = draw(shape, dtype, "factors")
        yield Case("Qr", text(shape, dtype, full), {"input": x}, {"full_matrices": full})
    # Columns that are zero below the diagonal keep their signs; what is underneath has those of both kinds.
    x = np.triu(draw((5, 4), "float32", "factors"))
    x[3:, 2] = draw((2,), "float32", "below")
    # Squares of these are not float32 numbers.
    wide = draw((5, 4), "float32", "scaled")
    columns = np.array([1, 1e-25, 1e25, 1e-3], np.float32)
    yield Case(
        "Qr", "scales", {"input": np.stack([wide * columns, wide * np.float32(1e-25), wide * columns[2]])}, taken=False
    )
    yield Case("Qr", "zeros", {"input": np.stack([x, -x, np.eye(5, 4, dtype=np.float32)])})
