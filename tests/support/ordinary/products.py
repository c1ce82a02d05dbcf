"""Cases of products of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from lstm_lower.dtypes import DTYPES
from tests.support.ordinary.case import FLOATS, Case, draw, grid, text

FLAGS = list(product((False, True), repeat=2))
WHOLE = ("int32", "int64")


def _turned(shape: tuple[int, ...], transposed: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


def _matrices() -> Iterator[Case]:
    shapes = [((1, 1), (1, 1)), ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((5, 3), (3, 4))]
    for (first, second), dtype in grid(shapes, (*FLOATS, *WHOLE)):
        for turn_a, turn_b in FLAGS if dtype in ("float32", "float16") else FLAGS[-1:]:
            operands = {
                "a": draw(_turned(first, turn_a), dtype, "a"),
                "b": draw(_turned(second, turn_b), dtype, "b"),
            }
            attributes = {"transpose_a": turn_a, "transpose_b": turn_b}
            what = text(first, second, dtype, turn_a, turn_b)
            yield Case("MatMul", what, {**operands}, attributes, unranked=first == (5, 3))
    large = np.array([[2**31 - 1, 7], [3, -(2**31)]], np.int32)
    yield Case("MatMul", "wraps", {"a": large, "b": large})


def _batches() -> Iterator[Case]:
    same = [((0, 2, 3), (0, 3, 4)), ((2, 2, 0), (2, 0, 3)), ((3, 4), (4, 2)), ((2, 3, 4, 5), (2, 3, 5, 6))]
    broad = [((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((1, 3, 4), (7, 4, 2))]
    for op in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
        dtypes = (*FLOATS, *WHOLE) if op == "BatchMatMul" else (*FLOATS, "int16", *WHOLE)
        if op == "BatchMatMulV3":
            # The CPU has no kernel of it in float16.
            dtypes = dtypes[1:]
        for (first, second), dtype in grid(same if op == "BatchMatMul" else [*broad, *same], dtypes):
            for turn_x, turn_y in FLAGS if dtype in ("float32", "float16") and first == same[-1][0] else FLAGS[:1]:
                operands = {
                    "x": draw(_turned(first, turn_x), dtype, op),
                    "y": draw(_turned(second, turn_y), dtype, op, "y"),
                }
                attributes: dict[str, object] = {"adj_x": turn_x, "adj_y": turn_y}
                if op == "BatchMatMulV3":
                    attributes["Tout"] = int(DTYPES[dtype])
                what = text(first, second, dtype, turn_x, turn_y)
                yield Case(op, what, {**operands}, attributes, unranked=not turn_x and not turn_y and first == (3, 4))
    mixed = {"x": draw((2, 3), "int8"), "y": draw((3, 2), "uint8")}
    yield Case("BatchMatMulV3", "mixed", {**mixed}, {"Tout": int(DTYPES["int32"])})
    mixed = {"x": draw((2, 3), "bfloat16"), "y": draw((3, 2), "uint8")}
    yield Case("BatchMatMulV3", "mixed-floats", {**mixed}, {"Tout": int(DTYPES["bfloat16"])})


def _sums() -> Iterator[Case]:
    for equation, shapes in {
        "ij,jk->ik": [(2, 3), (3, 4)],
        "ij,kj->ki": [(2, 3), (4, 3)],
        "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
        "abc,cde->abde": [(2, 3, 4), (4, 2, 5)],
        "abde,cde->abc": [(2, 3, 2, 5), (4, 2, 5)],
        "aecd,abcd->acbe": [(2, 3, 4, 5), (2, 6, 4, 5)],
        "acbe,aecd->abcd": [(2, 4, 6, 3), (2, 3, 4, 5)],
        "i,j->ij": [(3,), (4,)],
        "i,i->": [(5,), (5,)],
        "ij,ij->ij": [(2, 3), (2, 3)],
        "ijk,j->k": [(2, 3, 4), (3,)],
        "bi,bj->bij": [(2, 3), (2, 4)],
        "ij->ji": [(2, 3)],
        "ijk->j": [(2, 3, 4)],
        "ii->i": [(3, 3)],
        "ii->": [(3, 3)],
        "i->ii": [(3,)],
        "ij->jiji": [(2, 3)],
        "i,ij->jjj": [(3,), (3, 2)],
        "...ij,...jk->...ik": [(2, 3, 4), (5, 1, 4, 2)],
        "...ij,...jk->...ki": [(2, 5, 3, 4), (4, 2)],
        "i...->...": [(3, 2, 4)],
        "ij,jk->ki": [(2, 0), (0, 3)],
    }.items():
        for dtype in ("float32", "float16", "int32") if equation == "abc,cde->abde" else ("float32",):
            parts = [draw(shape, dtype, equation, number) for number, shape in enumerate(shapes)]
            yield Case("Einsum", text(equation, dtype), {"inputs": parts}, {"equation": equation})
    for dtype in ("bfloat16", "float64", "int64"):
        parts = [draw((2, 3), dtype, 1), draw((3, 4), dtype, 2)]
        yield Case("Einsum", dtype, {"inputs": parts}, {"equation": "ij,jk->ik"})


def cases() -> Iterator[Case]:
    yield from _matrices()
    yield from _batches()
    yield from _sums()
