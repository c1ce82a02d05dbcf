"""Cases of ops that find, count and order elements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from lstm_lower.ops.raw import EVERYTHING, ORDERED
from tests.support.ordinary.case import INDEX, Case, draw, grid, numpy_dtype, text


def cases() -> Iterator[Case]:
    yield from _finding()
    yield from _ordering()
    yield from _counting()


def _coarse(shape: tuple[int, ...], dtype: str, *key: object) -> np.ndarray:
    """Numbers of which some are equal, some zero."""
    # Without a zero that has a sign: among halves TensorFlow counts it as another number.
    return np.asarray(np.round(draw(shape, dtype, *key).astype(np.float64) / 2) + 0.0).astype(numpy_dtype(dtype))


def _finding() -> Iterator[Case]:
    for shape, dtype in grid([(), (5,), (0, 2), (3, 1), (2, 3, 2)], EVERYTHING):
        x = _coarse(shape, dtype)
        place = {"index": np.zeros((int(x.astype(bool)), 0), np.int64)} if shape == () else None
        yield Case("Where", text(shape, dtype), {"condition": x}, taken=dtype != "float16", expected=place)
    yield Case("Where", "zero", {"condition": np.array(0, np.int32)}, expected={"index": np.zeros((0, 0), np.int64)})
    yield Case("Where", "nan", {"condition": np.array([np.nan, 0, 1], np.float32)})
    for shape, dtype in grid([(0,), (1,), (9,)], ORDERED):
        for number in (6, 7):
            operands, attributes = {"x": _coarse(shape, dtype)}, {"out_idx": number}
            yield Case("Unique", text(shape, dtype, number), {**operands}, attributes)
            yield Case("UniqueWithCounts", text(shape, dtype, number), {**operands}, attributes)
    for axis in ([], [0]):
        operands = {"x": _coarse((9,), "float32"), "axis": np.array(axis, np.int32)}
        yield Case("UniqueWithCountsV2", text(axis), {**operands}, constants=("axis",))
    table = np.array([[1, 0, 1], [2, 2, 2], [1, 0, 1]], np.int32)
    for axis in (0, 1):
        operands = {"x": table, "axis": np.array([axis], np.int64)}
        yield Case("UniqueWithCountsV2", text("table", axis), {**operands}, {"out_idx": 7}, constants=("axis",))
    for (first, second), dtype in grid([((0,), (2,)), ((3,), (0,)), ((6,), (3,))], ORDERED):
        operands = {"x": _coarse(first, dtype), "y": _coarse(second, dtype, "y")}
        yield Case("ListDiff", text(first, second, dtype), {**operands})
    yield Case("ListDiff", "int64", {**operands}, {"out_idx": 7})


def _ordering() -> Iterator[Case]:
    for (shape, k), dtype in grid([((5,), 2), ((2, 3), 3), ((0, 3), 1), ((2, 3), 0), ((2, 2, 7), 4)], ORDERED):
        operands = {"input": _coarse(shape, dtype)}
        yield Case("TopK", text(shape, k, dtype), {**operands}, {"k": k}, taken=False)
        for kind in INDEX:
            count = np.array(k, kind)
            attributes = {"index_type": 7} if kind == "int64" else {}
            operands = {"input": _coarse(shape, dtype), "k": count}
            yield Case("TopKV2", text(shape, k, dtype, kind), {**operands}, attributes, steering=("k",))
        for reverse in (False, True):
            if k:
                operands = {"input": draw(shape, dtype), "n": np.array(k - 1, np.int32)}
                what = text(shape, k, dtype, reverse)
                yield Case("NthElement", what, {**operands}, {"reverse": reverse}, steering=("n",))
    for dtype in ("int32", "int64", "float32", "float64"):
        x = np.array([-1, 0, 1, 5, 7, 100]).astype(dtype)
        yield Case("Bucketize", dtype, {"input": x.reshape(2, 3)}, {"boundaries": [0.0, 1.0, 7.5]}, unranked=True)
    operands = {"input": np.array([np.nan, np.inf, -np.inf, 0.1], np.float32)}
    yield Case("Bucketize", "wild", {**operands}, {"boundaries": [-1.0, 0.1]})
    for op, dtype in product(
        ("LowerBound", "UpperBound"), ("float32", "float64", "int32", "int64", "float16", "uint8")
    ):
        rows = np.sort(_coarse((2, 5), dtype), -1)
        for number in (6, 7):
            operands = {"sorted_inputs": rows, "values": _coarse((2, 4), dtype, "values")}
            yield Case(op, text(dtype, number), {**operands}, {"out_type": number})
        yield Case(op, text(dtype, "empty"), {"sorted_inputs": rows[:, :0], "values": rows})


def _counting() -> Iterator[Case]:
    numbers = np.array([0, 3, 1, 3, 9, 0], np.int32)
    for dtype, size in product(("int32", "int64", "float32", "float64"), (4, 0, 12)):
        for weights in (np.zeros(0, dtype), draw((6,), dtype)):
            what = text(dtype, size, weights.size)
            operands = {"arr": numbers, "size": np.array(size, np.int32), "weights": weights}
            yield Case("Bincount", what, {**operands}, steering=("size",))
        for index, binary, shape in product(INDEX, (False, True), ((6,), (2, 3), (0, 3))):
            for weights in (np.zeros(0, dtype), draw(shape, dtype)):
                if binary and weights.size:
                    continue
                operands = {
                    "input": numbers[: int(np.prod(shape))].reshape(shape).astype(index),
                    "size": np.array(size, index),
                    "weights": weights,
                }
                what = text(dtype, size, weights.shape, index, binary, shape)
                yield Case("DenseBincount", what, {**operands}, {"binary_output": binary}, steering=("size",))
    for dtype, form, bins in product(("int32", "int64", "float32", "float64"), INDEX, (1, 5)):
        for shape, (low, high) in product([(0,), (9,), (2, 3)], [(-4, 5), (2, 3)]):
            operands = {
                "values": draw(shape, dtype),
                "value_range": np.array([low, high], dtype),
                "nbins": np.int32(bins),
            }
            dtypes, what = {"dtype": {"int32": 6, "int64": 7}[form]}, text(shape, dtype, form, bins, low)
            yield Case("HistogramFixedWidth", what, {**operands}, dtypes, steering=("nbins",), unranked=True)
    operands = {"values": np.array([np.nan, np.inf, -np.inf, 1e38, 0.5], np.float32), "nbins": np.int32(4)}
    operands |= {"value_range": np.array([0, 2], np.float32)}
    # What is no number counts nowhere; TensorFlow's kernel ends the process.
    yield Case("HistogramFixedWidth", "wild", operands, expected={"out": np.array([1, 1, 0, 2], np.int32)})
