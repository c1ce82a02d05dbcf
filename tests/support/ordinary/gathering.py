"""Cases of ops that cut parts out of arrays, look elements up, or change them at their places."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from lstm_lower.ops.raw import EVERYTHING
from tests.support.ordinary.case import INDEX, Case, draw, mixed_grid, text

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def cases() -> Iterator[Case]:
    yield from _slices()
    yield from _gathers()
    yield from _scatters()
    yield from _sparse()


def spelled(spec: str) -> tuple[list[list[int]], dict[str, int]]:
    """Begins, ends and strides, and the masks, of an index as Python writes it; `new` and `...` as entries."""
    rows: list[list[int]] = []
    masks = dict.fromkeys(MASKS, 0)
    for position, entry in enumerate(spec.split(",")):
        bit, row = 1 << position, [0, 0, 1]
        if entry in ("new", "..."):
            masks["new_axis_mask" if entry == "new" else "ellipsis_mask"] |= bit
        elif ":" not in entry:
            row = [int(entry), int(entry) + 1, 1]
            masks["shrink_axis_mask"] |= bit
        else:
            first, last, *step = entry.split(":")
            row = [int(first or 0), int(last or 0), int((step or ["1"])[0] or 1)]
            masks["begin_mask"] |= bit * (first == "")
            masks["end_mask"] |= bit * (last == "")
        rows.append(row)
    return rows, {name: mask for name, mask in masks.items() if mask}


SPECS = [
    ((5,), "1:4"),
    ((5,), "-1"),
    ((5,), "::-1"),
    ((5,), "-9:9"),
    ((5,), "-9:9:-1"),
    ((5,), "9:-9:-2"),
    ((5,), "-7::-1"),
    ((5,), "-2::-1"),
    ((5,), "-2:-9:-1"),
    ((5,), "3:-6:-1"),
    ((5,), "3:0:-1"),
    ((5,), "2:4:-1"),
    ((5,), "-4:-1:2"),
    ((5,), "4:1"),
    ((0,), "::-1"),
    ((0, 3), ":,1"),
    ((4, 6), "1:,::2"),
    ((4, 6), "1,:3"),
    ((4, 6), ":,-1"),
    ((4, 6), "new,1,new,:,new"),
    ((4, 6), "..."),
    ((4, 6), "...,new,2"),
    ((3, 4, 5), "1"),
    ((3, 4, 5), "...,1:3"),
    ((3, 4, 5), "0,...,::-2"),
    ((3, 4, 5), "0,1,2"),
    ((2, 3, 4, 5), "new,1,...,new,-3:,2"),
]


def _slices() -> Iterator[Case]:
    forms = [
        ((), [], []),
        ((5,), [1], [3]),
        ((4, 0), [1, 0], [-1, -1]),
        ((4, 3), [0, 1], [4, 0]),
        ((3, 4, 2), [0, 2, 1], [2, -1, 1]),
    ]
    for ((shape, begin, size), dtype), index in product(mixed_grid(forms, EVERYTHING), INDEX):
        operands = {"input": draw(shape, dtype), "begin": np.array(begin, index), "size": np.array(size, index)}
        yield Case("Slice", text(shape, begin, size, dtype, index), {**operands}, steering=("begin", "size"))
    for ((shape, spec), dtype), index in product(mixed_grid(SPECS, EVERYTHING), INDEX):
        rows, masks = spelled(spec)
        columns = [np.array(column, index) for column in zip(*rows, strict=True)]
        operands = {"input": draw(shape, dtype), **dict(zip(("begin", "end", "strides"), columns, strict=True))}
        what = f"{text(shape)}[{spec}]-{dtype}-{index}"
        yield Case("StridedSlice", what, {**operands}, masks, constants=("strides",), steering=("begin", "end"))


def _gathers() -> Iterator[Case]:
    forms: list[Any] = [((3,), 1), ((4, 2), [3, 0, 0]), ((4, 0), [1]), ((4, 2), [[1, 0], [2, 3]])]
    for ((shape, rows), dtype), index in product(mixed_grid(forms, EVERYTHING), INDEX):
        operands = {"params": draw(shape, dtype), "indices": np.array(rows, index)}
        yield Case("Gather", text(shape, rows, dtype, index), {**operands})
    places: list[Any] = [
        ((4, 3), [2, 0], 0, 0),
        ((4, 3), 1, -1, 0),
        ((2, 3, 4), [[0, 3]], 2, 0),
        ((2, 3, 4), [[0, 2], [1, 1]], 1, 1),
        ((2, 3, 4), [[0, 3, 3], [1, 2, 0]], 2, 1),
        ((2, 3, 4), [[0, 3, 3], [1, 2, 0]], -1, -1),
        ((2, 2, 3, 2), [[[0, 2], [1, 1]], [[2, 2], [0, 1]]], 2, 2),
        ((2, 2, 3), [0, 1], 2, 1),
    ]
    for ((shape, rows, axis, batch), dtype), index in product(mixed_grid(places, EVERYTHING), INDEX):
        operands = {"params": draw(shape, dtype), "indices": np.array(rows, index), "axis": np.array(axis, np.int32)}
        what = text(shape, rows, axis, batch, dtype, index)
        yield Case("GatherV2", what, {**operands}, {"batch_dims": batch}, constants=("axis",))
    named: list[Any] = [
        ((4,), [[1], [3]]),
        ((4, 3), [[1], [3]]),
        ((2, 3), [1, 2]),
        ((2, 3), np.zeros((2, 0))),
        ((2, 3, 2), [[[1, 2], [0, 0]]]),
    ]
    for ((shape, rows), dtype), index in product(mixed_grid(named, EVERYTHING), INDEX):
        operands = {"params": draw(shape, dtype), "indices": np.array(rows, index)}
        # The last size of the indices tells the result's rank.
        what = text(shape, np.shape(rows), dtype, index)
        yield Case("GatherNd", what, {**operands}, steering=("indices",))
    for (shape, axis), dtype in mixed_grid([((), -1), ((3,), 0), ((2, 0), 1), ((2, 3), 1), ((2, 3), -1)], EVERYTHING):
        indices = np.arange(-1, np.prod(shape, dtype=int) - 1).reshape(shape)
        for index in INDEX:
            operands = {
                "indices": indices.astype(index),
                "depth": np.array(4, np.int32),
                "on_value": draw((), dtype, "on"),
                "off_value": draw((), dtype, "off"),
            }
            yield Case("OneHot", text(shape, axis, dtype, index), {**operands}, {"axis": axis}, steering=("depth",))
    operands = {**operands, "indices": np.array([3, 200], np.uint8)}
    yield Case("OneHot", "bytes", {**operands}, steering=("depth",))
    for order, index in product([[0], [2, 0, 1], [], [3, 1, 0, 2]], INDEX):
        yield Case("InvertPermutation", text(order, index), {"x": np.array(order, index)}, steering=("x",))


def _scatters() -> Iterator[Case]:
    forms: list[Any] = [
        ((5,), [[1], [3]], (2,)),
        ((3, 2), [[2]], (1, 2)),
        ((2, 3), [[1, 2], [0, 0]], (2,)),
        ((2, 3), np.zeros((0, 1), int), (0, 3)),
        ((2, 3, 2), [[[1], [0]]], (1, 2, 3, 2)),
    ]
    for op in ("Update", "Add", "Sub", "Max", "Min"):
        dtypes = EVERYTHING if op == "Update" else ("float16", "bfloat16", "float64", "int32", "int64", "int8", "uint8")
        for ((shape, places, size), dtype), index in product(mixed_grid(forms, dtypes), INDEX):
            operands = {
                "tensor": draw(shape, dtype),
                "indices": np.array(places, index),
                "updates": draw(size, dtype, "updates"),
            }
            what = text(shape, np.shape(places), dtype, index)
            yield Case(f"TensorScatter{op}", what, {**operands}, steering=("indices",))
    operands = {"tensor": draw((4,), "float32"), "indices": np.array([[1], [1], [3]]), "updates": draw((3,), "float32")}
    for op in ("Add", "Sub", "Max", "Min"):
        yield Case(f"TensorScatter{op}", "twice", {**operands}, steering=("indices",))


def _sparse() -> Iterator[Case]:
    forms: list[Any] = [
        (3, [5], ()),
        ([0, 2], [4], (2,)),
        ([1, 2], [4], ()),
        (np.zeros((0, 2), int), [2, 3], (0,)),
        ([[0, 1], [1, 2]], [2, 3], (2,)),
    ]
    for ((places, shape, size), dtype), index in product(mixed_grid(forms, EVERYTHING), INDEX):
        operands = {
            "sparse_indices": np.array(places, index),
            "output_shape": np.array(shape, index),
            "sparse_values": draw(size, dtype),
            "default_value": draw((), dtype, "default"),
        }
        what = text(np.shape(places), shape, size, dtype, index)
        yield Case("SparseToDense", what, {**operands}, steering=("output_shape",))
    for dtype, index in product(("float32", "float64", "int32", "int64", "float16"), INDEX):
        operands = {
            "a_indices": np.array([[0, 1], [1, 2]], index),
            "a_values": draw((2,), dtype),
            "a_shape": np.array([2, 3], index),
            "b": draw((2, 3), dtype, "b"),
        }
        what = text(dtype, index)
        yield Case("SparseTensorDenseAdd", what, {**operands}, steering=("a_indices", "a_shape"))
    for (adjoint_a, adjoint_b), dtype in product(product((False, True), repeat=2), ("float32", "float64", "int32")):
        operands = {
            "a_indices": np.array([[0, 1], [1, 2], [1, 0]], np.int64),
            "a_values": draw((3,), dtype),
            "a_shape": np.array([2, 3], np.int64),
            "b": draw((4, 2 if adjoint_a else 3) if adjoint_b else (2 if adjoint_a else 3, 4), dtype, "b"),
        }
        attributes = {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b}
        what = text(dtype, adjoint_a, adjoint_b)
        yield Case("SparseTensorDenseMatMul", what, {**operands}, attributes, steering=("a_indices", "a_shape"))
