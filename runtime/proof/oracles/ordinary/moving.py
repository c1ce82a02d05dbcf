"""Float64 oracles of the ops that turn, repeat, pad, join and divide arrays.

Each takes TensorFlow's argument names and returns the outputs under TensorFlow's names. Integers stay integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("Tile")
def tile(*, input: npt.ArrayLike, multiples: npt.ArrayLike) -> dict[str, Values]:
    """Repeated."""
    return {"output": np.tile(wide(input), ints(multiples))}


@oracle("Transpose")
def transpose(*, x: npt.ArrayLike, perm: npt.ArrayLike) -> dict[str, Values]:
    """Axes in another order."""
    return {"y": np.transpose(wide(x), ints(perm))}


@oracle("ConjugateTranspose")
def conjugate_transpose(*, x: npt.ArrayLike, perm: npt.ArrayLike) -> dict[str, Values]:
    """The conjugates, axes in another order."""
    y = np.transpose(wide(x), ints(perm))
    return {"y": y.conj() if y.dtype.kind == "c" else y}


@oracle("Pad", "PadV2")
def pad(*, input: npt.ArrayLike, paddings: npt.ArrayLike, constant_values: npt.ArrayLike = 0) -> dict[str, Values]:
    """A value around."""
    x = wide(input)
    widths = np.asarray(paddings)
    output = np.full(
        [size + int(row.sum()) for size, row in zip(x.shape, widths, strict=True)], wide(constant_values), x.dtype
    )
    output[tuple(slice(int(row[0]), int(row[0]) + size) for size, row in zip(x.shape, widths, strict=True))] = x
    return {"output": output}


@oracle("MirrorPad")
def mirror_pad(*, input: npt.ArrayLike, paddings: npt.ArrayLike, mode: str) -> dict[str, Values]:
    """Mirrored elements around, with or without the outermost."""
    widths = [(int(row[0]), int(row[1])) for row in np.asarray(paddings)]
    kind: Any = "reflect" if mode == "REFLECT" else "symmetric"
    return {"output": np.pad(wide(input), widths, kind)}


@oracle("ReverseV2")
def reverse(*, tensor: npt.ArrayLike, axis: npt.ArrayLike) -> dict[str, Values]:
    """Axes turned round."""
    return {"output": np.flip(wide(tensor), tuple(ints(axis)))}


@oracle("ReverseSequence")
def reverse_sequence(
    *, input: npt.ArrayLike, seq_lengths: npt.ArrayLike, seq_dim: int, batch_dim: int = 0
) -> dict[str, Values]:
    """Entry by entry."""
    x = np.moveaxis(wide(input), [batch_dim, seq_dim], [0, 1]).copy()
    for entry, length in zip(x, ints(seq_lengths), strict=True):
        entry[:length] = entry[:length][::-1].copy()
    return {"output": np.moveaxis(x, [0, 1], [batch_dim, seq_dim])}


@oracle("Roll")
def roll(*, input: npt.ArrayLike, shift: npt.ArrayLike, axis: npt.ArrayLike) -> dict[str, Values]:
    """Shifted round."""
    return {"output": np.roll(wide(input), ints(shift), ints(axis))}


@oracle("ConcatV2")
def concat(*, values: Sequence[npt.ArrayLike], axis: npt.ArrayLike, N: int = 0) -> dict[str, Values]:
    """One behind the other."""
    return {"output": np.concatenate([wide(value) for value in values], ints(axis)[0])}


@oracle("Concat")
def concat_v1(*, concat_dim: npt.ArrayLike, values: Sequence[npt.ArrayLike], N: int = 0) -> dict[str, Values]:
    """One behind the other."""
    return concat(values=values, axis=concat_dim)


@oracle("Pack")
def pack(*, values: Sequence[npt.ArrayLike], N: int = 0, axis: int = 0) -> dict[str, Values]:
    """Side by side."""
    return {"output": np.stack([wide(value) for value in values], axis)}


@oracle("Split")
def split(*, axis: npt.ArrayLike, value: npt.ArrayLike, num_split: int) -> dict[str, Any]:
    """Equal parts."""
    return {"output": np.split(wide(value), num_split, ints(axis)[0])}


@oracle("SplitV")
def split_v(*, value: npt.ArrayLike, size_splits: npt.ArrayLike, axis: npt.ArrayLike, num_split: int) -> dict[str, Any]:
    """Parts of the given sizes."""
    x, sizes, along = wide(value), ints(size_splits), ints(axis)[0]
    rest = x.shape[along] - sum(size for size in sizes if size >= 0)
    ends = np.cumsum([rest if size < 0 else size for size in sizes])
    return {"output": np.split(x, ends[:-1], along)}


@oracle("Unpack")
def unpack(*, value: npt.ArrayLike, num: int, axis: int = 0) -> dict[str, Any]:
    """Slice by slice."""
    return {"output": list(np.moveaxis(wide(value), axis, 0))}


@oracle("DynamicPartition")
def dynamic_partition(*, data: npt.ArrayLike, partitions: npt.ArrayLike, num_partitions: int) -> dict[str, Any]:
    """Group by group."""
    groups = np.asarray(partitions)
    return {"outputs": [wide(data)[groups == number] for number in range(num_partitions)]}


def _space_to_batch(x: Values, blocks: list[int], widths: Values) -> Values:
    """Place by place of a block: every so many elements of the padded array."""
    count = len(blocks)
    around = [(0, 0)] * (x.ndim - 1 - count)
    padded = np.pad(x, [(0, 0), *((int(a), int(b)) for a, b in widths), *around])
    steps = [slice(None, None, block) for block in blocks]
    sizes = padded[(slice(None), *steps)].shape
    parts = []
    for place in np.ndindex(*blocks):
        begins = [slice(first, None, block) for first, block in zip(place, blocks, strict=True)]
        parts.append(padded[(slice(None), *begins)].reshape(sizes))
    return np.concatenate(parts)


def _batch_to_space(x: Values, blocks: list[int], widths: Values) -> Values:
    """Place by place of a block: written to every so many elements, then cropped."""
    count, cells = len(blocks), math.prod(blocks)
    larger = [size * block for size, block in zip(x.shape[1:], blocks, strict=False)]
    batch = x.shape[0] // cells
    output = np.zeros([batch, *larger, *x.shape[1 + count :]], x.dtype)
    for number, place in enumerate(np.ndindex(*blocks)):
        begins = [slice(first, None, block) for first, block in zip(place, blocks, strict=True)]
        output[(slice(None), *begins)] = x[number * batch : (number + 1) * batch]
    crops = [slice(int(a), size - int(b)) for size, (a, b) in zip(larger, widths, strict=True)]
    return output[(slice(None), *crops)]


@oracle("SpaceToBatchND")
def space_to_batch_nd(
    *, input: npt.ArrayLike, block_shape: npt.ArrayLike, paddings: npt.ArrayLike
) -> dict[str, Values]:
    """Places of blocks as entries of the batch."""
    return {"output": _space_to_batch(wide(input), ints(block_shape), np.asarray(paddings))}


@oracle("SpaceToBatch")
def space_to_batch(*, input: npt.ArrayLike, paddings: npt.ArrayLike, block_size: int) -> dict[str, Values]:
    """The same for two axes."""
    return {"output": _space_to_batch(wide(input), [block_size] * 2, np.asarray(paddings))}


@oracle("BatchToSpaceND")
def batch_to_space_nd(*, input: npt.ArrayLike, block_shape: npt.ArrayLike, crops: npt.ArrayLike) -> dict[str, Values]:
    """Entries of the batch as places of blocks."""
    return {"output": _batch_to_space(wide(input), ints(block_shape), np.asarray(crops))}


@oracle("BatchToSpace")
def batch_to_space(*, input: npt.ArrayLike, crops: npt.ArrayLike, block_size: int) -> dict[str, Values]:
    """The same for two axes."""
    return {"output": _batch_to_space(wide(input), [block_size] * 2, np.asarray(crops))}


@oracle("SpaceToDepth")
def space_to_depth(*, input: npt.ArrayLike, block_size: int, data_format: str = "NHWC") -> dict[str, Values]:
    """Place by place of a block, one behind the other along the channels."""
    x = np.moveaxis(wide(input), data_format.index("C"), -1)
    parts = [x[:, row::block_size, column::block_size] for row, column in np.ndindex(block_size, block_size)]
    return {"output": np.moveaxis(np.concatenate(parts, -1), -1, data_format.index("C"))}


@oracle("DepthToSpace")
def depth_to_space(*, input: npt.ArrayLike, block_size: int, data_format: str = "NHWC") -> dict[str, Values]:
    """Channels written to the places of blocks."""
    x = np.moveaxis(wide(input), data_format.index("C"), -1)
    batch, height, width, channels = x.shape
    depth = channels // block_size**2
    output = np.zeros([batch, height * block_size, width * block_size, depth], x.dtype)
    for number, (row, column) in enumerate(np.ndindex(block_size, block_size)):
        output[:, row::block_size, column::block_size] = x[..., number * depth : (number + 1) * depth]
    return {"output": np.moveaxis(output, -1, data_format.index("C"))}
