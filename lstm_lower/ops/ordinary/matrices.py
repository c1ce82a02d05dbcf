"""Definitions of TensorFlow's ops on the diagonals of matrices, the last two axes of an array.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, agree
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, number, numbers, shape_of


class MatrixDiag(RawOp, diagonal="*S N"):
    """Zeros with the operand's rows on the diagonals of square matrices."""


class BatchMatrixDiag(RawOp, diagonal="*S N"):
    """MatrixDiag, under the name it has in older graphs."""


def _diagonals(call: Call) -> tuple[int, int] | None:
    """The first and the last diagonal that the operand `k` speaks of; `None` where they are not known."""
    found = numbers(call, "k")
    if found is None:
        return None
    if len(found) not in (1, 2) or found[0] > found[-1]:
        raise call.error("k", "one diagonal, or the first and the last in order", f"{found}")
    return found[0], found[-1]


ALIGN = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")


class MatrixDiagV2(RawOp, diagonal="*S N"):
    """Matrices with the operand's rows as diagonals k[0] to k[1], and a value elsewhere."""

    static_operands = ("k", "num_rows", "num_cols")

    @classmethod
    def verify(cls, call: Call) -> None:
        """As many rows as there are diagonals."""
        shape, band = shape_of(call, "diagonal"), _diagonals(call)
        if shape is not None and band is not None and band[0] != band[1]:
            count = band[1] - band[0] + 1
            if len(shape) < 2 or not agree((shape[-2],), (count,)):
                raise call.error("diagonal", f"{count} diagonals (as k)", list(shape))
        cls.sizes(call)

    @classmethod
    def sizes(cls, call: Call) -> tuple[Dim, Dim]:
        """Rows and columns; those that are not given are as few as the diagonals need."""
        band, length = _diagonals(call), call.sizes.get("N")
        rows, columns = number(call, "num_rows"), number(call, "num_cols")
        if band is None or not isinstance(length, int) or rows is None or columns is None:
            return None if rows == -1 else rows, None if columns == -1 else columns
        low, high = band
        least_rows, least_columns = length - min(high, 0), length + max(low, 0)
        if rows == columns == -1:
            rows = columns = max(least_rows, least_columns)
        rows, columns = least_rows if rows == -1 else rows, least_columns if columns == -1 else columns
        if rows < least_rows or columns < least_columns or not (rows == least_rows or columns == least_columns):
            raise call.error("diagonal", f"diagonals of a matrix of {rows} x {columns}", f"of length {length}")
        return rows, columns


class MatrixDiagV3(MatrixDiagV2):
    """MatrixDiagV2 with a choice of the end at which shorter diagonals are filled up."""


class MatrixDiagPart(RawOp, input="*S M N"):
    """The diagonals of matrices."""


def _smaller(first: Dim, second: Dim) -> Dim:
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    return first if first == second else None


class BatchMatrixDiagPart(RawOp, input="*S M N"):
    """MatrixDiagPart, under the name it has in older graphs."""


class MatrixDiagPartV2(RawOp, input="*S M N"):
    """The diagonals k[0] to k[1] of matrices, the highest one first, filled up with a value."""

    static_operands = ("k",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The diagonals are the matrices'."""
        band, rows, columns = _diagonals(call), call.sizes.get("M"), call.sizes.get("N")
        if band is None or not isinstance(rows, int) or not isinstance(columns, int):
            return
        longest = min(rows + min(band[1], 0), columns - max(band[0], 0))
        if longest < 0 or not all(-rows <= k <= columns for k in band):
            raise call.error("k", f"diagonals from {-rows} to {columns}", f"{list(band)}")


class MatrixDiagPartV3(MatrixDiagPartV2):
    """MatrixDiagPartV2 with a choice of the end at which shorter diagonals are filled up."""


class MatrixSetDiag(RawOp, input="*S M N"):
    """Matrices with other diagonals."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A diagonal for each matrix."""
        shape, diagonal = shape_of(call, "input"), shape_of(call, "diagonal")
        if shape is None or diagonal is None or "k" in call.operands:
            return
        if not agree(diagonal, (*shape[:-2], _smaller(shape[-2], shape[-1]))):
            raise call.error("diagonal", f"shape {[*shape[:-2], _smaller(shape[-2], shape[-1])]}", list(diagonal))


class BatchMatrixSetDiag(MatrixSetDiag):
    """MatrixSetDiag, under the name it has in older graphs."""


class MatrixSetDiagV2(MatrixSetDiag):
    """Matrices with other diagonals k[0] to k[1]."""

    static_operands = ("k",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """As many rows as there are diagonals."""
        shape, band = shape_of(call, "diagonal"), _diagonals(call)
        if shape is None or band is None or band[0] == band[1]:
            return
        if len(shape) < 2 or not agree((shape[-2],), (band[1] - band[0] + 1,)):
            raise call.error("diagonal", f"{band[1] - band[0] + 1} diagonals (as k)", list(shape))


class MatrixSetDiagV3(MatrixSetDiagV2):
    """MatrixSetDiagV2 with a choice of the end at which shorter diagonals are filled up."""


class MatrixBandPart(RawOp, input="*S M N", num_lower="", num_upper=""):
    """Matrices with zeros but for some diagonals below and above the main one; a negative number means all."""


class BatchMatrixBandPart(RawOp, input="*S M N", num_lower="", num_upper=""):
    """MatrixBandPart, under the name it has in older graphs."""


class Cross(RawOp, a="*S 3", b="*S 3"):
    """The cross products of vectors of 3 elements along the last axis."""
