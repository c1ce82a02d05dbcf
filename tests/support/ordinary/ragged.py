"""Cases of the ops on ragged arrays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from lstm_lower.opdef import DType
from tests.support.ordinary.case import INDEX, Case, draw, text

# Empty rows at the front, in the middle and at the end; none at all; two levels.
SPLITS = {
    "gaps": [[0, 0, 3, 3, 4, 7, 7]],
    "none": [[0]],
    "empty": [[0, 0, 0]],
    "levels": [[0, 2, 2, 5], [0, 1, 1, 4, 6, 7]],
}
INNER = [(), (3,)]


def cases() -> Iterator[Case]:
    for (name, levels), inner, kind in product(SPLITS.items(), INNER, INDEX):
        splits = [np.array(level, kind) for level in levels]
        values = draw((levels[-1][-1], *inner), "float32", name)
        what = text(name, inner, kind)
        yield from _dense(what, splits, values)
        operands = {"rt_nested_splits": splits, "rt_dense_values": values}
        yield Case("RaggedTensorToSparse", what, {**operands})
        for indices in ([], [len(levels[0]) - 2, 0, 1, 0]):
            if len(levels[0]) > 2:
                chosen = np.array(indices, "int32" if indices else "int64")
                operands = {"params_nested_splits": splits, "params_dense_values": values, "indices": chosen}
                ranks = {"OUTPUT_RAGGED_RANK": len(levels)}
                yield Case("RaggedGather", text(what, len(indices)), {**operands}, ranks)
    yield from _ranges()


def _dense(what: str, splits: list[np.ndarray], values: np.ndarray) -> Iterator[Case]:
    levels, inner = len(splits), list(values.shape[1:])
    owners = [np.repeat(np.arange(len(level) - 1), np.diff(level)).astype(level.dtype) for level in splits]
    rows = np.array(len(splits[0]) - 1, splits[0].dtype)
    forms = {"ROW_SPLITS": splits, "VALUE_ROWIDS": [rows, *owners]}
    for kind, partitions in forms.items():
        types = ["FIRST_DIM_SIZE"] * (kind == "VALUE_ROWIDS") + [kind] * levels
        for shape in (-1, [-1, 2, *[-1] * (levels - 1), *inner], [4, *[3] * levels, *inner]):
            if kind == "VALUE_ROWIDS" and (levels > 1 or shape != -1):
                continue
            operands = {
                "shape": np.array(shape, np.int64),
                "values": values,
                "default_value": np.array(2.5, np.float32) if shape == -1 else draw(tuple(inner), "float32", "default"),
                "row_partition_tensors": partitions,
            }
            attributes = {"row_partition_types": types}
            yield Case("RaggedTensorToTensor", text(what, kind, shape), {**operands}, attributes, steering=("shape",))


def _ranges() -> Iterator[Case]:
    forms = {"up": (0, [3, 0, 5, 1], 1), "down": ([5, 2, 7], [0, 4, -2], [-2, -1, -3]), "one": (1, 6, 2)}
    forms |= {"none": ([0][:0], [0][:0], 1), "far": ([3, 0], 9, [4, 3])}
    for (name, operands), dtype in product(forms.items(), ("int32", "int64", "float32")):
        for kind in (DType.INT32, DType.INT64):
            given = dict(zip(("starts", "limits", "deltas"), (np.array(x, dtype) for x in operands), strict=True))
            yield Case("RaggedRange", text(name, dtype, kind.name), {**given}, {"Tsplits": kind.value})
