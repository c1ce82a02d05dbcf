"""Definitions of TensorFlow's ops on the diagonals of matrices, the last two axes of an array.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, agree
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import (
    ALL,
    INDEX,
    REAL,
    number,
    numbers,
    result,
    shape_of,
)


class MatrixDiag(OpDef):
    """Zeros with the operand's rows on the diagonals of square matrices."""

    class Types:
        T = ALL

    class Inputs:
        diagonal = operand("*S N")

    class Outputs:
        output = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The last size twice."""
        shape = shape_of(call, "diagonal")
        return result(call, None if shape is None else (*shape, shape[-1]))


class BatchMatrixDiag(MatrixDiag):
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


class MatrixDiagV2(OpDef):
    """Matrices with the operand's rows as diagonals k[0] to k[1], and a value elsewhere."""

    static_operands = ("k", "num_rows", "num_cols")

    class Types:
        T = ALL

    class Inputs:
        diagonal = operand("*S N")
        k = operand(None, "int32")
        num_rows = operand(None, "int32")
        num_cols = operand(None, "int32")
        padding_value = operand(None)

    class Outputs:
        output = operand(None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """As many rows as there are diagonals."""
        shape, band = shape_of(call, "diagonal"), _diagonals(call)
        if shape is None or band is None or band[0] == band[1]:
            return
        if len(shape) < 2 or not agree((shape[-2],), (band[1] - band[0] + 1,)):
            raise call.error("diagonal", f"{band[1] - band[0] + 1} diagonals (as k)", list(shape))

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

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Rows and columns instead of the diagonals."""
        shape, band = shape_of(call, "diagonal"), _diagonals(call)
        if shape is None or band is None:
            return result(call, None)
        batch = shape[:-1] if band[0] == band[1] else shape[:-2]
        return result(call, (*batch, *cls.sizes(call)))


class MatrixDiagV3(MatrixDiagV2):
    """MatrixDiagV2 with a choice of the end at which shorter diagonals are filled up."""

    class Attrs:
        align = attr(str, "RIGHT_LEFT", choices=ALIGN)


class MatrixDiagPart(OpDef):
    """The diagonals of matrices."""

    class Types:
        T = ALL

    class Inputs:
        input = operand("*S M N")

    class Outputs:
        diagonal = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The smaller of the last two sizes."""
        shape = shape_of(call, "input")
        return result(call, None if shape is None else (*shape[:-2], _smaller(shape[-2], shape[-1])))


def _smaller(first: Dim, second: Dim) -> Dim:
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    return first if first == second else None


class BatchMatrixDiagPart(MatrixDiagPart):
    """MatrixDiagPart, under the name it has in older graphs."""


class MatrixDiagPartV2(OpDef):
    """The diagonals k[0] to k[1] of matrices, the highest one first, filled up with a value."""

    static_operands = ("k",)

    class Types:
        T = ALL

    class Inputs:
        input = operand("*S M N")
        k = operand(None, "int32")
        padding_value = operand(None)

    class Outputs:
        diagonal = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """As many rows as diagonals, as long as the longest."""
        shape, band = shape_of(call, "input"), _diagonals(call)
        if shape is None or band is None:
            return result(call, None)
        rows, columns = shape[-2:]
        longest: Dim = _smaller(rows, columns) if band == (0, 0) else None
        if isinstance(rows, int) and isinstance(columns, int):
            longest = min(rows + min(band[1], 0), columns - max(band[0], 0))
            if longest < 0 or not all(-rows <= k <= columns for k in band):
                raise call.error("k", f"diagonals from {-rows} to {columns}", f"{list(band)}")
        count = () if band[0] == band[1] else (band[1] - band[0] + 1,)
        return result(call, (*shape[:-2], *count, longest))


class MatrixDiagPartV3(MatrixDiagPartV2):
    """MatrixDiagPartV2 with a choice of the end at which shorter diagonals are filled up."""

    class Attrs:
        align = attr(str, "RIGHT_LEFT", choices=ALIGN)


class MatrixSetDiag(OpDef):
    """Matrices with other diagonals."""

    class Types:
        T = ALL

    class Inputs:
        input = operand("*S M N")
        diagonal = operand(None)

    class Outputs:
        output = operand("*S M N")

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

    class Inputs(MatrixSetDiag.Inputs):
        k = operand(None, "int32")

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

    class Attrs:
        align = attr(str, "RIGHT_LEFT", choices=ALIGN)


class MatrixBandPart(OpDef):
    """Matrices with zeros but for some diagonals below and above the main one; a negative number means all."""

    class Types:
        T = ALL
        Tindex = INDEX

    class Inputs:
        input = operand("*S M N")
        num_lower = operand("", "Tindex")
        num_upper = operand("", "Tindex")

    class Outputs:
        band = operand("*S M N")


class BatchMatrixBandPart(MatrixBandPart):
    """MatrixBandPart, under the name it has in older graphs."""


class Cross(OpDef):
    """The cross products of vectors of 3 elements along the last axis."""

    class Types:
        T = REAL

    class Inputs:
        a = operand("*S 3")
        b = operand("*S 3")

    class Outputs:
        product = operand("*S 3")
