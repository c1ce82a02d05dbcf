"""Lowering of the ops on the diagonals of matrices, the last two axes of an array.

An element of row r and column c belongs to diagonal c - r. What holds the diagonals `low` to `high` has a row for each,
the highest first; shorter ones stand at the left or right end of their row.
"""

from __future__ import annotations

import dataclasses

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.matrices import (
    BatchMatrixBandPart,
    BatchMatrixDiag,
    BatchMatrixDiagPart,
    BatchMatrixSetDiag,
    Cross,
    MatrixBandPart,
    MatrixDiag,
    MatrixDiagPart,
    MatrixDiagPartV2,
    MatrixDiagPartV3,
    MatrixDiagV2,
    MatrixDiagV3,
    MatrixSetDiag,
    MatrixSetDiagV2,
    MatrixSetDiagV3,
)
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import INT64, reshape_to
from lstm_lower.passes.formulas.sizes import Size, at_least, at_most, up_to
from lstm_lower.passes.rules.registry import Node, lowers


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
    # Before opset 14 a 0 is no size.
    last: Size = sizes[-2] * sizes[-1] if x.builder.opset >= 14 else -1
    return reshape_to(x, x.builder.sizes([*sizes[:-2], last]))


@lowers(MatrixDiag, BatchMatrixDiag, repeatable=True)
def matrix_diag(n: Node) -> dict[str, Expr]:
    """The diagonal where row and column are the same."""
    b, x = n.builder, computed(n.moved("diagonal"))
    numbers = up_to(b, x.size(-1))
    same = numbers.unsqueeze(1).equals(numbers)
    return {"output": b.where(same, x.unsqueeze(-1), 0)}


@lowers(MatrixDiagV2, MatrixDiagV3, repeatable=True)
def matrix_diag_v2(n: Node) -> dict[str, Expr]:
    """The diagonals in their places, the padding elsewhere."""
    b, x = n.builder, computed(n.moved("diagonal"))
    if x.shape is None:
        raise n.unsupported("diagonal", "a known rank", "an unknown one")
    length, given = x.size(-1), [int(n.fixed(name).reshape(-1)[0]) for name in ("num_rows", "num_cols")]
    band = Band.of(n, 0, 0)
    least = [length - min(band.high, 0), length + max(band.low, 0)]
    if given == [-1, -1]:
        sizes = [at_least(least[0], least[1])] * 2
    else:
        sizes = [size if size != -1 else smallest for size, smallest in zip(given, least, strict=True)]
    band = dataclasses.replace(band, rows=sizes[0], columns=sizes[1])
    values, inside = band.spread(x)
    return {"output": b.where(inside, values, computed(n.moved("padding_value")).reshape())}


@lowers(MatrixSetDiag, BatchMatrixSetDiag, MatrixSetDiagV2, MatrixSetDiagV3, repeatable=True)
def matrix_set_diag(n: Node) -> dict[str, Expr]:
    """The diagonals in their places, the input elsewhere."""
    b, x = n.builder, computed(n.moved("input"))
    if x.shape is None:
        raise n.unsupported("input", "a known rank", "an unknown one")
    values, inside = Band.of(n, x.size(-2), x.size(-1)).spread(computed(n.moved("diagonal")))
    return {"output": b.set_shape(b.where(inside, values, x), x.shape)}


@lowers(MatrixDiagPart, BatchMatrixDiagPart, MatrixDiagPartV2, MatrixDiagPartV3, repeatable=True)
def matrix_diag_part(n: Node) -> dict[str, Expr]:
    """Each element of a diagonal looked up in its matrix, written as a row; the padding where there is none."""
    b, x = n.builder, computed(n.moved("input"))
    if x.shape is None:
        raise n.unsupported("input", "a known rank", "an unknown one")
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
    return {"diagonal": found}


@lowers(MatrixBandPart, BatchMatrixBandPart, repeatable=True)
def matrix_band_part(n: Node) -> dict[str, Expr]:
    """Elements that are not farther from the diagonal than the numbers say."""
    b, x = n.builder, computed(n.moved("input"))
    row, column = up_to(b, x.size(-2)).unsqueeze(1), up_to(b, x.size(-1))
    kept = []
    for name, distance in (("num_lower", row - column), ("num_upper", column - row)):
        most = getattr(n, name).cast(INT64)
        kept.append((most < 0) | (distance <= most))
    band = b.where(b.op(std.And, *kept), x, 0)
    return {"band": band if x.shape is None else b.set_shape(band, x.shape)}


@lowers(Cross, repeatable=True)
def cross(n: Node) -> dict[str, Expr]:
    """The products of each two other coordinates."""
    b = n.builder
    orders = b.ints(1, 2, 0), b.ints(2, 0, 1)
    a, c = ([computed(n.moved(name)).take(order, axis=-1) for order in orders] for name in ("a", "b"))
    return {"product": a[0] * c[1] - a[1] * c[0]}
