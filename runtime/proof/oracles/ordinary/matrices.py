"""Float64 oracles of the ops on diagonals of matrices, element by element.

Each takes TensorFlow's argument names and returns the outputs under TensorFlow's names. Integers stay integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


def _places(rows: int, columns: int, k: Sequence[int], align: str) -> Iterator[tuple[int, int, int, int]]:
    """Row and column of every element of some diagonals, and where these hold it: diagonal and place."""
    low, high = k[0], k[-1]
    longest = max(min(rows + min(d, 0), columns - max(d, 0)) for d in range(low, high + 1))
    above, below = align.split("_")
    for d in range(low, high + 1):
        length = min(rows + min(d, 0), columns - max(d, 0))
        right = (d > 0 and above == "RIGHT") or (d < 0 and below == "RIGHT")
        for place in range(length):
            yield place + max(-d, 0), place + max(d, 0), high - d, place + (longest - length) * right


def _with(matrices: Values, diagonals: Values, k: Sequence[int], align: str = "LEFT_LEFT") -> Values:
    """Matrices with other diagonals."""
    output = matrices.copy()
    held = diagonals[..., None, :] if k[0] == k[-1] else diagonals
    for row, column, diagonal, place in _places(matrices.shape[-2], matrices.shape[-1], k, align):
        output[..., row, column] = held[..., diagonal, place]
    return output


@oracle("MatrixDiag", "BatchMatrixDiag")
def matrix_diag(*, diagonal: npt.ArrayLike) -> dict[str, Values]:
    """Written into zeros."""
    x = wide(diagonal)
    return {"output": _with(np.zeros((*x.shape, x.shape[-1]), x.dtype), x, [0])}


@oracle("MatrixDiagV2")
def matrix_diag_v2(
    *,
    diagonal: npt.ArrayLike,
    k: npt.ArrayLike,
    num_rows: npt.ArrayLike,
    num_cols: npt.ArrayLike,
    padding_value: npt.ArrayLike,
    align: str = "LEFT_LEFT",
) -> dict[str, Values]:
    """Written into the padding."""
    x, band = wide(diagonal), ints(k)
    rows, columns = ints(num_rows)[0], ints(num_cols)[0]
    least = x.shape[-1] - min(band[-1], 0), x.shape[-1] + max(band[0], 0)
    if rows == columns == -1:
        least = max(least), max(least)
    rows, columns = (found if found != -1 else size for found, size in zip((rows, columns), least, strict=True))
    batch = x.shape[:-1] if band[0] == band[-1] else x.shape[:-2]
    return {"output": _with(np.full((*batch, rows, columns), wide(padding_value)), x, band, align)}


@oracle("MatrixDiagV3")
def matrix_diag_v3(*, align: str = "RIGHT_LEFT", **operands: Any) -> dict[str, Values]:
    """Written into the padding."""
    return matrix_diag_v2(align=align, **operands)


@oracle("MatrixSetDiag", "BatchMatrixSetDiag", "MatrixSetDiagV2")
def matrix_set_diag(
    *, input: npt.ArrayLike, diagonal: npt.ArrayLike, k: npt.ArrayLike = 0, align: str = "LEFT_LEFT"
) -> dict[str, Values]:
    """Written into the input."""
    return {"output": _with(wide(input), wide(diagonal), ints(k), align)}


@oracle("MatrixSetDiagV3")
def matrix_set_diag_v3(*, align: str = "RIGHT_LEFT", **operands: Any) -> dict[str, Values]:
    """Written into the input."""
    return matrix_set_diag(align=align, **operands)


@oracle("MatrixDiagPart", "BatchMatrixDiagPart", "MatrixDiagPartV2")
def matrix_diag_part(
    *, input: npt.ArrayLike, k: npt.ArrayLike = 0, padding_value: npt.ArrayLike = 0, align: str = "LEFT_LEFT"
) -> dict[str, Values]:
    """Read into the padding."""
    x, band = wide(input), ints(k)
    places = list(_places(x.shape[-2], x.shape[-1], band, align))
    longest = min(x.shape[-2] + min(band[-1], 0), x.shape[-1] - max(band[0], 0))
    found = np.full((*x.shape[:-2], band[-1] - band[0] + 1, longest), wide(padding_value), x.dtype)
    for row, column, diagonal, place in places:
        found[..., diagonal, place] = x[..., row, column]
    return {"diagonal": found[..., 0, :] if band[0] == band[-1] else found}


@oracle("MatrixDiagPartV3")
def matrix_diag_part_v3(*, align: str = "RIGHT_LEFT", **operands: Any) -> dict[str, Values]:
    """Read into the padding."""
    return matrix_diag_part(align=align, **operands)


@oracle("MatrixBandPart", "BatchMatrixBandPart")
def matrix_band_part(*, input: npt.ArrayLike, num_lower: npt.ArrayLike, num_upper: npt.ArrayLike) -> dict[str, Values]:
    """Zeros outside the band."""
    x, lower, upper = wide(input), int(np.asarray(num_lower)), int(np.asarray(num_upper))
    band = x.copy()
    for row, column in np.ndindex(*x.shape[-2:]):
        if (0 <= lower < row - column) or (0 <= upper < column - row):
            band[..., row, column] = 0
    return {"band": band}


@oracle("Cross")
def cross(*, a: npt.ArrayLike, b: npt.ArrayLike) -> dict[str, Values]:
    """The cross product."""
    return {"product": np.cross(wide(a), wide(b))}
