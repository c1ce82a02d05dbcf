"""Cases of ops on diagonals of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from lstm_lower.ops.raw import EVERYTHING, NUMBERS
from tests.support.ordinary.case import INDEX, Case, draw, grid, text

ALIGN = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")

MATRICES = [(3, 3), (4, 2), (2, 3, 4)]
LINES = [(0,), (1,), (-1,), (1, 1)]
BANDS = [(-1, 1), (0, 1), (-1, 0), (-1, 2)]


def cases() -> Iterator[Case]:
    for shape, dtype in grid([(3,), (2, 0), (0, 2), (2, 3)], EVERYTHING):
        for op in ("MatrixDiag", "BatchMatrixDiag"):
            yield Case(op, text(shape, dtype), {"diagonal": draw(shape, dtype)}, taken=op == "MatrixDiag")
    for shape, dtype in grid([(3, 3), (2, 0), (4, 2), (2, 3, 4)], EVERYTHING):
        diagonal = draw((*shape[:-2], min(shape[-2:])), dtype, "diagonal")
        for op in ("", "Batch"):
            yield Case(f"{op}MatrixDiagPart", text(shape, dtype), {"input": draw(shape, dtype)}, taken=not op)
            operands = {"input": draw(shape, dtype), "diagonal": diagonal}
            yield Case(f"{op}MatrixSetDiag", text(shape, dtype), {**operands}, taken=not op)
    yield from _bands()
    for ((shape, lower, upper), dtype), index in product(
        grid([((3, 3), 0, 0), ((2, 4), -1, 0), ((4, 2), 1, -1), ((0, 3), 0, 1), ((2, 3, 3), 1, 0)], EVERYTHING), INDEX
    ):
        operands = {
            "input": draw(shape, dtype),
            "num_lower": np.array(lower, index),
            "num_upper": np.array(upper, index),
        }
        what, steering = text(shape, lower, upper, dtype, index), ("num_lower", "num_upper")
        yield Case("MatrixBandPart", what, {**operands}, steering=steering)
        if index == "int64":
            yield Case("BatchMatrixBandPart", what, {**operands}, steering=steering, taken=False)
    for shape, dtype in grid([(3,), (0, 3), (2, 3)], NUMBERS):
        yield Case("Cross", text(shape, dtype), {"a": draw(shape, dtype), "b": draw(shape, dtype, "b")})


def _bands() -> Iterator[Case]:
    forms = [(shape, band, "float32", align) for shape, band, align in product(MATRICES, LINES, ("", ALIGN[1]))]
    forms += [(shape, band, "float32", align) for shape, band, align in product(MATRICES, BANDS, ("", *ALIGN))]
    forms += [((2, 3, 4), (-1, 2), dtype, ALIGN[1]) for dtype in EVERYTHING if dtype != "float32"]
    for shape, band, dtype, align in forms:
        rows, columns = shape[-2:]
        low, high = band[0], band[-1]
        longest = max(min(rows + min(k, 0), columns - max(k, 0)) for k in range(low, high + 1))
        if low < -rows or high >= columns or longest < 1:
            continue
        held = (*shape[:-2], *([high - low + 1] if low != high else []), longest)
        version, attributes = ("V3", {"align": align}) if align else ("V2", {})
        k = np.array(band if len(band) > 1 else band[0], np.int32)
        value, what = draw((), dtype, "padding"), text(shape, band, dtype, align)
        operands = {"input": draw(shape, dtype), "k": k, "padding_value": value}
        yield Case(f"MatrixDiagPart{version}", what, {**operands}, attributes, constants=("k",))
        operands = {"input": draw(shape, dtype), "diagonal": draw(held, dtype, "held"), "k": k}
        yield Case(f"MatrixSetDiag{version}", what, {**operands}, attributes, constants=("k",))
        for number, sizes in enumerate([(rows, columns), (-1, -1), (rows, -1)]):
            if number == 2 and (longest != rows + min(high, 0)):
                continue
            operands = {
                "diagonal": draw(held, dtype, "held"),
                "k": k,
                "num_rows": np.array(sizes[0], np.int32),
                "num_cols": np.array(sizes[1], np.int32),
                "padding_value": value,
            }
            constants = ("k", "num_rows", "num_cols")
            yield Case(f"MatrixDiag{version}", f"{what}-{number}", {**operands}, attributes, constants=constants)
