"""Cases of ops that read shapes, give arrays another one, or fill one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from lstm_lower.ops.raw import EVERYTHING, NUMBERS
from tests.support.ordinary.case import INDEX, Case, draw, grid, mixed_grid, numpy_dtype, text

SHAPES = [(), (3,), (2, 0, 3), (2, 3, 4)]


def cases() -> Iterator[Case]:
    yield from _readings()
    yield from _reshapes()
    yield from _fillings()
    yield from _ranges()


def _readings() -> Iterator[Case]:
    for op, shape in product(("Shape", "Size"), SHAPES):
        yield Case(op, text(shape), {"input": draw(shape, "float32")}, unranked=True)
        yield Case(op, text(shape, "int64"), {"input": draw(shape, "bool")}, {"out_type": 7})
    for s0, s1 in [((2, 1, 4), (5, 1)), ((), (3,)), ((3,), ()), ((1, 1), (1,)), ((4, 5), (4, 5)), ((0, 1), (1, 3))]:
        for dtype in INDEX:
            operands = {"s0": np.array(s0, dtype), "s1": np.array(s1, dtype)}
            yield Case("BroadcastArgs", text(s0, s1, dtype), {**operands}, steering=("s0",))
    for dtype in INDEX:
        operands = {"indices": np.array([0, 5, 23], dtype), "dims": np.array([2, 3, 4], dtype)}
        yield Case("UnravelIndex", dtype, {**operands}, steering=("dims",))
    operands = {"indices": np.array(7, np.int32), "dims": np.array([3, 4], np.int32)}
    yield Case("UnravelIndex", "scalar", {**operands}, steering=("dims",))


def _reshapes() -> Iterator[Case]:
    forms = [
        ((2, 3, 4), (-1,)),
        ((2, 3, 4), (4, -1, 2)),
        ((2, 0, 3), (0, 5)),
        ((2, 0, 3), (-1, 2)),
        ((), (1, 1)),
        ((1, 1), ()),
        ((0,), (3, 0, 2)),
        ((6,), (2, 3)),
    ]
    for (shape, target), dtype in grid(forms, EVERYTHING):
        index = "int64" if len(target) == 2 else "int32"
        operands = {"tensor": draw(shape, dtype), "shape": np.array(target, index)}
        # Opset 13 has no 0 that is a size, unless it is known.
        since = 14 if 0 in target else 13
        if since == 13:
            yield Case("Reshape", text(shape, target, dtype), {**operands}, steering=("shape",), unranked=True)
        else:
            yield Case("Reshape", text(shape, target, dtype), {**operands}, constants=("shape",))
    for (shape, axis), dtype in grid([((), 0), ((3,), -1), ((2, 0), 1), ((2, 3), -3)], EVERYTHING):
        operands = {"input": draw(shape, dtype), "axis": np.array(axis, np.int32)}
        yield Case("ExpandDims", text(shape, axis, dtype), {**operands}, constants=("axis",), unranked=axis >= 0)
    vector = {"input": draw((2,), "float32"), "axis": np.array([1], np.int64)}
    yield Case("ExpandDims", "vector", {**vector}, constants=("axis",))
    for (shape, axes), dtype in mixed_grid(
        [((1, 3, 1), []), ((1, 3, 1), [0]), ((1, 1), [0, 1]), ((), []), ((1, 0), [-2]), ((2, 1), [-1])], EVERYTHING
    ):
        operands = {"input": draw(shape, dtype)}
        what, unranked = text(shape, axes, dtype), bool(axes) and min(axes) >= 0
        # Without axes the sizes tell the result's rank.
        steering = () if axes else ("input",)
        yield Case("Squeeze", what, {**operands}, {"axis": axes}, steering=steering, unranked=unranked)
    operands = {"input": draw((1, 3, 1), "float32")}
    yield Case(
        "Squeeze", "in-graphs", {**operands}, {"squeeze_dims": [2]}, expected={"output": operands["input"][:, :, 0]}
    )
    for dtype in EVERYTHING:
        yield Case("EnsureShape", dtype, {"input": draw((2, 3), dtype)}, {"shape": [-1, 3]}, unranked=True)
        yield Case("PlaceholderWithDefault", dtype, {"input": draw((2, 3), dtype)}, {"shape": [2, -1]}, taken=False)


def _fillings() -> Iterator[Case]:
    for shape, dtype in grid(SHAPES, EVERYTHING):
        for index in INDEX:
            operands = {"dims": np.array(shape, index), "value": draw((), dtype, "fill")}
            yield Case("Fill", text(shape, dtype, index), {**operands}, steering=("dims",))
        yield Case("Fill", text(shape, dtype, "known"), {**operands}, steering=("dims",), constants=("value",))
        yield Case("ZerosLike", text(shape, dtype), {"x": draw(shape, dtype)}, unranked=True)
        yield Case("OnesLike", text(shape, dtype), {"x": draw(shape, dtype)}, unranked=True)
        number = {"bool": 9, "bfloat16": 16, "float32": 1}.get(dtype)
        if number is not None:
            operands = {"shape": np.array(shape, np.int32)}
            attributes = {"dtype": number, "init": True}
            yield Case("Empty", text(shape, dtype), {**operands}, attributes, steering=("shape",))
    forms = [((), (2, 3)), ((1, 3), (4, 3)), ((2, 1, 1), (2, 0, 5)), ((3,), (3,)), ((2, 1), (3, 2, 4))]
    for (shape, target), dtype in grid(forms, EVERYTHING):
        for index in INDEX:
            operands = {"input": draw(shape, dtype), "shape": np.array(target, index)}
            yield Case("BroadcastTo", text(shape, target, dtype, index), {**operands}, steering=("shape",))


def _ranges() -> Iterator[Case]:
    names = ("start", "limit", "delta")
    everywhere, few = [(0, 5, 1), (2, 2, 1), (1, 10, 4)], ("int8", "int16", "uint16", "uint32", "uint64")
    forms = [*product(everywhere, NUMBERS), *product([(5, 0, -2), (-3, -9, -1)], ("int8", "int32", "float32"))]
    for bounds, dtype in forms:
        if dtype != "uint8":
            kind = numpy_dtype(dtype)
            operands = {name: np.array(bound).astype(kind) for name, bound in zip(names, bounds, strict=True)}
            yield Case("Range", text(bounds, dtype), {**operands}, steering=names, taken=dtype not in few)
    operands = {name: np.array(b, np.float32) for name, b in zip(names, (0.1, 1, 0.3), strict=True)}
    yield Case("Range", "fractions", {**operands}, steering=names)
