"""Float64 oracles of the ops that move, place and count elements in gradient graphs.

Each takes TensorFlow's argument names and returns the outputs under TensorFlow's names. Integers stay integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.registry import oracle

Array = npt.NDArray[Any]


def widen(value: npt.ArrayLike) -> Array:
    """The value in float64 if it is of a floating type, as it is otherwise."""
    array = np.asarray(value)
    exact = np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_
    return array if exact else array.astype(np.float64)


def slice_index(
    begin: npt.ArrayLike,
    end: npt.ArrayLike,
    strides: npt.ArrayLike,
    *,
    begin_mask: int,
    end_mask: int,
    ellipsis_mask: int,
    new_axis_mask: int,
    shrink_axis_mask: int,
) -> tuple[Any, ...]:
    """The numpy index that a strided slice's operands and masks spell."""
    index: list[Any] = []
    for position, (first, last, step) in enumerate(zip(*map(np.ravel, (begin, end, strides)), strict=True)):
        bit = 1 << position
        if ellipsis_mask & bit:
            index.append(Ellipsis)
        elif new_axis_mask & bit:
            index.append(np.newaxis)
        elif shrink_axis_mask & bit:
            index.append(int(first))
        else:
            index.append(
                slice(None if begin_mask & bit else int(first), None if end_mask & bit else int(last), int(step))
            )
    return tuple(index)


@oracle("StridedSliceGrad")
def strided_slice_grad(
    *,
    shape: npt.ArrayLike,
    begin: npt.ArrayLike,
    end: npt.ArrayLike,
    strides: npt.ArrayLike,
    dy: npt.ArrayLike,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> dict[str, Array]:
    """Zeros with dy in the place that the slice read."""
    gradient = widen(dy)
    output = np.zeros(tuple(int(size) for size in np.ravel(shape)), gradient.dtype)
    index = slice_index(
        begin,
        end,
        strides,
        begin_mask=begin_mask,
        end_mask=end_mask,
        ellipsis_mask=ellipsis_mask,
        new_axis_mask=new_axis_mask,
        shrink_axis_mask=shrink_axis_mask,
    )
    output[index] = gradient
    return {"output": output}


@oracle("MirrorPadGrad")
def mirror_pad_grad(*, input: npt.ArrayLike, paddings: npt.ArrayLike, mode: str) -> dict[str, Array]:
    """Every element of the padded gradient is added to the one that its place mirrors."""
    gradient, widths = widen(input), np.asarray(paddings)
    sizes = [size - int(row.sum()) for size, row in zip(gradient.shape, widths, strict=True)]
    kind = "reflect" if mode == "REFLECT" else "symmetric"
    places = np.pad(np.arange(int(np.prod(sizes))).reshape(sizes), [tuple(map(int, row)) for row in widths], kind)  # type: ignore[call-overload]
    output = np.zeros(int(np.prod(sizes)), gradient.dtype)
    np.add.at(output, places.ravel(), gradient.ravel())
    return {"output": output.reshape(sizes)}


@oracle("BroadcastGradientArgs")
def broadcast_gradient_args(*, s0: npt.ArrayLike, s1: npt.ArrayLike) -> dict[str, Array]:
    """Axes at which an operand has size 1 or none at all; nothing when the shapes are equal."""
    shapes = [np.asarray(s0), np.asarray(s1)]
    axes: list[Array] = [shape[:0] for shape in shapes]
    if not np.array_equal(shapes[0], shapes[1]):
        rank = max(len(shape) for shape in shapes)
        padded = [np.concatenate([np.ones(rank - len(shape), shape.dtype), shape]) for shape in shapes]
        axes = [np.flatnonzero(shape == 1).astype(shape.dtype) for shape in padded]
    return {"r0": axes[0], "r1": axes[1]}


@oracle("ShapeN")
def shape_n(*, input: Sequence[npt.ArrayLike], N: int = 0, out_type: int = 6) -> dict[str, Array]:
    """The operands' shapes; `out_type` is 6 for int32 and 7 for int64, as in ONNX."""
    dtype = {6: np.int32, 7: np.int64}[out_type]
    return {f"output[{number}]": np.asarray(np.shape(x), dtype) for number, x in enumerate(input)}


@oracle("ConcatOffset")
def concat_offset(*, concat_dim: npt.ArrayLike, shape: Sequence[npt.ArrayLike], N: int = 0) -> dict[str, Array]:
    """Along the axis the sizes of the operands before, elsewhere 0."""
    offset = np.zeros_like(np.asarray(shape[0]))
    axis = int(np.asarray(concat_dim))
    offsets = {}
    for number, sizes in enumerate(shape):
        offsets[f"offset[{number}]"] = offset.copy()
        offset[axis] += np.asarray(sizes)[axis]
    return offsets


@oracle("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(
    *,
    indices: Sequence[npt.ArrayLike],
    data: Sequence[npt.ArrayLike],
    N: int = 0,
) -> dict[str, Array]:
    """Rows written one after the other into zeros."""
    rows = [np.asarray(index) for index in indices]
    values = [widen(value) for value in data]
    rest = values[0].shape[rows[0].ndim :]
    size = max((int(index.max()) for index in rows if index.size), default=-1) + 1
    merged = np.zeros((size, *rest), values[0].dtype)
    for index, value in zip(rows, values, strict=True):
        for row, item in zip(index.ravel(), value.reshape(index.size, *rest), strict=True):
            merged[row] = item
    return {"merged": merged}


@oracle("UnsortedSegmentSum")
def unsorted_segment_sum(
    *, data: npt.ArrayLike, segment_ids: npt.ArrayLike, num_segments: npt.ArrayLike
) -> dict[str, Array]:
    """Rows added to their segments; rows of negative segments are left out."""
    values, ids = widen(data), np.asarray(segment_ids)
    rest = values.shape[ids.ndim :]
    output = np.zeros((int(np.asarray(num_segments)), *rest), values.dtype)
    rows = values.reshape(ids.size, *rest)
    kept = ids.ravel() >= 0
    np.add.at(output, ids.ravel()[kept], rows[kept])
    return {"output": output}
