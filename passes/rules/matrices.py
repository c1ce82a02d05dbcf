"""Lowering of the ops on the diagonals of matrices, the last two axes of an array.

An element of row r and column c belongs to diagonal c - r. What holds the diagonals `low` to `high` has a row for each,
the highest first; shorter ones stand at the left or right end of their row.
"""

from __future__ import annotations

import dataclasses

from lstm_lower.dims import Dim, agree
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, number, numbers, shape_of
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import INT64
from lstm_lower.passes.formulas.sizes import Size, at_least, at_most, up_to
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


@dataclasses.dataclass(frozen=True)
class Band:
    """Some diagonals of matrices.

    Attributes:
        low, high: the first and the last one.
        rows, columns: the matrices' sizes.
        align: at which end of their rows diagonals above and below the main one stand.
    """

    low: int
    high: int
    rows: Size
    columns: Size
    align: str

    @classmethod
    def of(cls, n: Node, rows: Size, columns: Size) -> Band:
        """The band that a node's operands speak of."""
        known = [int(k) for k in n.fixed("k").reshape(-1)] if "k" in n.call.operands else [0]
        return cls(known[0], known[-1], rows, columns, str(n.get("align", "LEFT_LEFT")))

    @property
    def longest(self) -> Size:
        """The length of the longest diagonal."""
        return at_most(self.rows + min(self.high, 0), self.columns - max(self.low, 0))

    def offset(self, diagonal: Expr) -> Expr:
        """Where in its row each diagonal begins."""
        nothing = diagonal - diagonal
        sides = [float(side == "RIGHT") for side in self.align.split("_")]
        if self.low == self.high or not any(sides):
            return nothing
        b = diagonal.builder
        below, above = diagonal.minimum(0), diagonal.maximum(0)
        lengths = (below + b.sizes([self.rows])).minimum(b.sizes([self.columns]) - above)
        missing = b.sizes([self.longest]) - lengths
        return b.where(diagonal > 0, missing * int(sides[0]), missing * int(sides[1]))

    def spread(self, diagonals: Expr) -> tuple[Expr, Expr]:
        """Matrices with the diagonals in their places and anything elsewhere, and which places these are."""
        b = diagonals.builder
        row, column = up_to(b, self.rows).unsqueeze(1), up_to(b, self.columns)
        diagonal = column - row
        inside = (diagonal > self.low - 1) & (diagonal < self.high + 1)
        place = row.minimum(column) + self.offset(diagonal)
        if self.low != self.high:
            place = place + (self.high - diagonal) * b.sizes([diagonals.size(-1)])
            diagonals = _in_rows(diagonals)
        return diagonals.take(b.where(inside, place, 0), axis=-1), inside


def _in_rows(x: Expr) -> Expr:
    """Each matrix, of known rank, as one row."""
    sizes: list[Size] = [x.size(axis) for axis in range(len(x.shape or ()))]
    return x.builder.op(std.Reshape, x, x.builder.sizes([*sizes[:-2], sizes[-2] * sizes[-1]]), allowzero=1)


class MatrixDiag(RawOp, diagonal="*S N"):
    """Zeros with the operand's rows on the diagonals of square matrices."""


class BatchMatrixDiag(RawOp, diagonal="*S N"):
    """MatrixDiag, under the name it has in older graphs."""


@lowers(MatrixDiag, BatchMatrixDiag, repeatable=True)
def matrix_diag(n: Node, b: Builder) -> Expr:
    """The diagonal where row and column are the same."""
    x = computed(n.moved("diagonal"))
    numbers = up_to(b, x.size(-1))
    same = numbers.unsqueeze(1).equals(numbers)
    return b.where(same, x.unsqueeze(-1), 0)


def _diagonals(call: Call) -> tuple[int, int] | None:
    """The first and the last diagonal that the operand `k` speaks of; `None` where they are not known."""
    found = numbers(call, "k")
    if found is None:
        return None
    if len(found) not in (1, 2) or found[0] > found[-1]:
        raise call.error("k", "one diagonal, or the first and the last in order", f"{found}")
    return found[0], found[-1]


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


@lowers(MatrixDiagV2, MatrixDiagV3, repeatable=True)
def matrix_diag_v2(n: Node, b: Builder) -> Expr:
    """The diagonals in their places, the padding elsewhere."""
    x = computed(n.moved("diagonal"))
    rank_of(n, "diagonal", x)
    length, given = x.size(-1), [int(n.fixed(name).reshape(-1)[0]) for name in ("num_rows", "num_cols")]
    band = Band.of(n, 0, 0)
    least = [length - min(band.high, 0), length + max(band.low, 0)]
    if given == [-1, -1]:
        sizes = [at_least(least[0], least[1])] * 2
    else:
        sizes = [size if size != -1 else smallest for size, smallest in zip(given, least, strict=True)]
    band = dataclasses.replace(band, rows=sizes[0], columns=sizes[1])
    values, inside = band.spread(x)
    return b.where(inside, values, computed(n.moved("padding_value")).reshape())


def _smaller(first: Dim, second: Dim) -> Dim:
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    return first if first == second else None


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


@lowers(MatrixSetDiag, BatchMatrixSetDiag, MatrixSetDiagV2, MatrixSetDiagV3, repeatable=True)
def matrix_set_diag(n: Node, b: Builder) -> Expr:
    """The diagonals in their places, the input elsewhere."""
    x = computed(n.moved("input"))
    if x.shape is None:
        raise n.unsupported("input", "a known rank", "an unknown one")
    values, inside = Band.of(n, x.size(-2), x.size(-1)).spread(computed(n.moved("diagonal")))
    return b.set_shape(b.where(inside, values, x), x.shape)


class MatrixDiagPart(RawOp, input="*S M N"):
    """The diagonals of matrices."""


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


@lowers(MatrixDiagPart, BatchMatrixDiagPart, MatrixDiagPartV2, MatrixDiagPartV3, repeatable=True)
def matrix_diag_part(n: Node, b: Builder) -> Expr:
    """Each element of a diagonal looked up in its matrix, written as a row; the padding where there is none."""
    x = computed(n.moved("input"))
    rank_of(n, "input", x)
    rows, columns = x.size(-2), x.size(-1)
    band = Band.of(n, rows, columns)
    diagonal = b.constant([[k] for k in range(band.high, band.low - 1, -1)], INT64)
    place = up_to(b, band.longest) - band.offset(diagonal)
    row, column = place - diagonal.minimum(0), place + diagonal.maximum(0)
    within = (row < b.sizes([rows])) & (column < b.sizes([columns]))
    valid = (place > -1) & within
    number = b.where(valid, row * b.sizes([columns]) + column, 0)
    if band.low == band.high:
        number, valid = number.squeeze(0), valid.squeeze(0)
    found = _in_rows(x).take(number, axis=-1)
    if "padding_value" in n.call.operands and band.low != band.high:
        found = b.where(valid, found, computed(n.moved("padding_value")).reshape())
    return found


class MatrixBandPart(RawOp, input="*S M N", num_lower="", num_upper=""):
    """Matrices with zeros but for some diagonals below and above the main one; a negative number means all."""


class BatchMatrixBandPart(RawOp, input="*S M N", num_lower="", num_upper=""):
    """MatrixBandPart, under the name it has in older graphs."""


@lowers(MatrixBandPart, BatchMatrixBandPart, repeatable=True)
def matrix_band_part(n: Node, b: Builder) -> Expr:
    """Elements that are not farther from the diagonal than the numbers say."""
    x = computed(n.moved("input"))
    row, column = up_to(b, x.size(-2)).unsqueeze(1), up_to(b, x.size(-1))
    kept = []
    for name, distance in (("num_lower", row - column), ("num_upper", column - row)):
        most = getattr(n, name).cast(INT64)
        kept.append((most < 0) | (distance <= most))
    band = b.where(b.op(std.And, *kept), x, 0)
    return band if x.shape is None else b.set_shape(band, x.shape)


class Cross(RawOp, a="*S 3", b="*S 3"):
    """The cross products of vectors of 3 elements along the last axis."""


@lowers(Cross, repeatable=True)
def cross(n: Node, b: Builder) -> Expr:
    """The products of each two other coordinates."""
    orders = b.ints(1, 2, 0), b.ints(2, 0, 1)
    a, c = ([computed(n.moved(name)).take(order, axis=-1) for order in orders] for name in ("a", "b"))
    return a[0] * c[1] - a[1] * c[0]
