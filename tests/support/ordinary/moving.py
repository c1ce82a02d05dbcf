"""Cases of ops that turn, repeat, pad, join and divide arrays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from lstm_lower.ops.raw import EVERYTHING
from tests.support.ordinary.case import INDEX, Case, draw, grid, mixed_grid, text


def cases() -> Iterator[Case]:
    yield from _repeats()
    yield from _paddings()
    yield from _turns()
    yield from _joins()
    yield from _divisions()
    yield from _blocks()


def _repeats() -> Iterator[Case]:
    forms = [((), ()), ((3,), (2,)), ((2, 0), (1, 3)), ((1, 3), (0, 2)), ((2, 3), (1, 1)), ((2, 3, 1), (2, 1, 3))]
    for ((shape, factors), dtype), index in product(grid(forms, EVERYTHING), INDEX):
        operands = {"input": draw(shape, dtype), "multiples": np.array(factors, index)}
        what, taken = text(shape, factors, dtype, index), dtype != "uint16"
        yield Case("Tile", what, {**operands}, steering=("multiples",), taken=taken)
    orders = [((), ()), ((3,), (0,)), ((0, 2), (1, 0)), ((2, 3, 4), (0, 1, 2)), ((2, 3, 4), (2, 0, 1))]
    for (shape, order), dtype in grid(orders, EVERYTHING):
        for op in ("Transpose", "ConjugateTranspose"):
            operands = {"x": draw(shape, dtype), "perm": np.array(order, np.int32)}
            # TensorFlow's own ConjugateTranspose of a scalar ends the process.
            same = {"y": operands["x"]} if op != "Transpose" and shape == () else None
            what = text(shape, order, dtype)
            yield Case(op, what, {**operands}, constants=("perm",), unranked=True, expected=same)
    operands = {"x": draw((2, 3, 4), "float32"), "perm": np.array([-1, 0, -2], np.int64)}
    yield Case("Transpose", "from-behind", {**operands}, constants=("perm",))
    yield Case("Transpose", "from-behind-fed", {**operands}, steering=("perm",))
    for shape, dtype in grid([(), (3,), (0, 2), (2, 3, 4)], ("float16", "float32", "bool", "int8")):
        operands = {"x": draw(shape, dtype), "perm": np.roll(np.arange(len(shape), dtype=np.int32), 1)}
        yield Case("Transpose", text(shape, dtype, "fed"), {**operands}, steering=("perm",))


def _paddings() -> Iterator[Case]:
    forms = [
        ((), np.zeros((0, 2), int)),
        ((3,), [[0, 0]]),
        ((0, 2), [[1, 0], [0, 2]]),
        ((2, 3), [[0, 0], [2, 1]]),
        ((2, 3, 1), [[1, 2], [0, 0], [0, 3]]),
    ]
    for ((shape, widths), dtype), index in product(mixed_grid(forms, EVERYTHING), INDEX):
        paddings = np.array(widths, index)
        what = text(shape, paddings.tolist(), dtype, index)
        operands = {"input": draw(shape, dtype), "paddings": paddings}
        yield Case("Pad", what, {**operands}, steering=("paddings",))
        operands["constant_values"] = draw((), dtype, "value")
        yield Case("PadV2", what, {**operands}, steering=("paddings",))
    mirrored = [
        ((5,), [[2, 1]]),
        ((2, 2), [[0, 0], [0, 0]]),
        ((4, 3), [[1, 1], [0, 2]]),
        ((3, 2, 4), [[0, 0], [1, 1], [3, 0]]),
    ]
    for ((shape, widths), dtype), mode in product(mixed_grid(mirrored, EVERYTHING), ("REFLECT", "SYMMETRIC")):
        for index in INDEX:
            operands = {"input": draw(shape, dtype), "paddings": np.array(widths, index)}
            what = text(shape, widths, dtype, mode, index)
            yield Case("MirrorPad", what, {**operands}, {"mode": mode}, steering=("paddings",))
    whole = {"input": draw((3,), "float32"), "paddings": np.array([[3, 3]], np.int32)}
    yield Case("MirrorPad", "whole", {**whole}, {"mode": "SYMMETRIC"}, steering=("paddings",))


def _turns() -> Iterator[Case]:
    for (shape, axes), dtype in mixed_grid(
        [((), []), ((3,), [0]), ((2, 0), [1]), ((2, 3, 4), []), ((2, 3, 4), [0, -1])], EVERYTHING
    ):
        operands = {"tensor": draw(shape, dtype), "axis": np.array(axes, np.int32)}
        yield Case("ReverseV2", text(shape, axes, dtype), {**operands}, constants=("axis",))
    forms = [
        ((3, 4), [4, 0, 2], 1, 0),
        ((4, 3), [1, 4, 3], 0, 1),
        ((2, 3, 4), [1, 4], 2, 0),
        ((2, 3, 4), [1, 0, 2, 2], 0, 2),
        ((2, 3, 4, 2), [4, 2, 3], 2, 1),
        ((0, 3), [], 1, 0),
        ((2, 3, 4), [3, 2], -2, 0),
    ]
    for ((shape, lengths, time, batch), dtype), index in product(mixed_grid(forms, EVERYTHING), INDEX):
        if time < 0 and dtype == "float32":
            continue
        operands = {"input": draw(shape, dtype), "seq_lengths": np.array(lengths, index)}
        attributes = {"seq_dim": time % len(shape), "batch_dim": batch}
        yield Case("ReverseSequence", text(shape, time, batch, dtype, index), {**operands}, attributes)
    rolls = [((5,), 2, 0), ((5,), [-7], [0]), ((0, 3), [1], [0]), ((3, 4), [1, -1], [0, 1]), ((3, 4), [1, 2], [-1, 1])]
    for ((shape, shift, axis), dtype), index in product(mixed_grid(rolls, EVERYTHING), INDEX):
        operands = {"input": draw(shape, dtype), "shift": np.array(shift, index), "axis": np.array(axis, np.int32)}
        what = text(shape, shift, axis, dtype, index)
        yield Case("Roll", what, {**operands}, constants=("axis",), steering=("shift",))


def _joins() -> Iterator[Case]:
    forms = [([(2,), (0,), (3,)], 0), ([(2, 3), (2, 1)], -1), ([(1, 2, 2), (3, 2, 2)], 0)]
    for (shapes, axis), dtype in mixed_grid(forms, EVERYTHING):
        values = [draw(shape, dtype, number) for number, shape in enumerate(shapes)]
        operands = {"values": values, "axis": np.array(axis, np.int32)}
        attributes = {}
        yield Case("ConcatV2", text(shapes, axis, dtype), {**operands}, attributes, constants=("axis",))
        if axis >= 0:
            operands = {"concat_dim": np.array(axis, np.int32), "values": values}
            yield Case("Concat", text(shapes, axis, dtype), {**operands}, attributes, constants=("concat_dim",))
    for (shape, count, axis), dtype in mixed_grid(
        [((), 3, 0), ((2,), 1, -1), ((0, 2), 2, 1), ((2, 3), 2, -2)], EVERYTHING
    ):
        values = [draw(shape, dtype, number) for number in range(count)]
        yield Case("Pack", text(shape, count, axis, dtype), {"values": values}, {"axis": axis})


def _divisions() -> Iterator[Case]:
    for (shape, count, axis), dtype in mixed_grid(
        [((4,), 1, 0), ((6, 0), 3, 0), ((0, 2), 2, 0), ((2, 6), 3, -1)], EVERYTHING
    ):
        operands = {"axis": np.array(axis, np.int32), "value": draw(shape, dtype)}
        yield Case("Split", text(shape, count, axis, dtype), {**operands}, {"num_split": count}, constants=("axis",))
    forms = [((4,), [4], 0), ((5,), [2, 0, 3], 0), ((5, 2), [1, -1, 2], 0), ((2, 6), [-1, 1], -1)]
    for ((shape, sizes, axis), dtype), index in product(mixed_grid(forms, EVERYTHING), INDEX):
        operands = {
            "value": draw(shape, dtype),
            "size_splits": np.array(sizes, index),
            "axis": np.array(axis, np.int32),
        }
        attributes = {"num_split": len(sizes)}
        what = text(shape, sizes, axis, dtype, index)
        yield Case("SplitV", what, {**operands}, attributes, constants=("axis",), steering=("size_splits",))
    for (shape, axis), dtype in mixed_grid([((3,), 0), ((2, 0), 0), ((1, 2), -2), ((2, 3, 2), 1)], EVERYTHING):
        attributes = {"num": shape[axis], "axis": axis}
        yield Case("Unpack", text(shape, axis, dtype), {"value": draw(shape, dtype)}, attributes, unranked=axis >= 0)
    groups = [((5,), [0, 2, 0, 1, 2], 3), ((0, 2), [], 2), ((2, 2, 3), [[1, 0], [1, 1]], 3), ((3, 2), [1, 0, 1], 2)]
    for (shape, numbers, count), dtype in mixed_grid(groups, EVERYTHING):
        operands = {"data": draw(shape, dtype), "partitions": np.array(numbers, np.int32)}
        yield Case("DynamicPartition", text(shape, numbers, count, dtype), {**operands}, {"num_partitions": count})


def _blocks() -> Iterator[Case]:
    forms = [
        ((2, 4), [2], [[0, 0]]),
        ((1, 3, 4, 2), [2, 2], [[0, 1], [0, 0]]),
        ((2, 2, 3, 1), [1, 3], [[1, 0], [2, 1]]),
        ((1, 3, 2), [2, 2], [[0, 1], [1, 1]]),
    ]
    for ((shape, blocks, widths), dtype), index in product(mixed_grid(forms, ("float16", "int32", "uint8")), INDEX):
        what = text(shape, blocks, widths, dtype, index)
        block = np.array(blocks, index)
        operands = {"input": draw(shape, dtype), "block_shape": block, "paddings": np.array(widths, index)}
        yield Case("SpaceToBatchND", what, {**operands}, constants=("block_shape",), steering=("paddings",))
        back = (shape[0] * int(np.prod(blocks)) * 2, *shape[1:])
        operands = {"input": draw(back, dtype), "block_shape": block, "crops": np.array(widths, index)}
        yield Case("BatchToSpaceND", what, {**operands}, constants=("block_shape",), steering=("crops",))
    operands = {"input": draw((1, 3, 4, 2), "float32"), "paddings": np.array([[0, 1], [1, 1]], np.int32)}
    yield Case("SpaceToBatch", "padded", {**operands}, {"block_size": 2}, steering=("paddings",))
    operands = {"input": draw((8, 2, 3, 2), "float32"), "crops": np.array([[0, 1], [2, 1]], np.int32)}
    yield Case("BatchToSpace", "cropped", {**operands}, {"block_size": 2}, steering=("crops",))
    for (layout, block), dtype in [*product(product(("NHWC", "NCHW"), (2, 3)), ["float32"]), (("NHWC", 2), "int32")]:
        taken = layout == "NHWC"
        sizes = {"N": 2, "H": 2 * block, "W": block, "C": 2}
        attributes = {"block_size": block, "data_format": layout}
        operands = {"input": draw(tuple(sizes[letter] for letter in layout), dtype)}
        yield Case("SpaceToDepth", text(layout, block, dtype), {**operands}, attributes, taken=taken)
        sizes = {"N": 2, "H": 2, "W": 1, "C": 2 * block * block}
        operands = {"input": draw(tuple(sizes[letter] for letter in layout), dtype)}
        yield Case("DepthToSpace", text(layout, block, dtype), {**operands}, attributes, taken=taken)
