"""Operators over windows and places, which `onnx.reference` walks element by element in Python: here axis by axis.

At window p of an axis, element r of the window lies on element p * stride + r * dilation - before of the image.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx.reference.op_run
import onnx.reference.ops.op_max_pool

Array = np.ndarray[Any, Any]
Places = tuple[slice, ...]

_SAME = ("SAME_UPPER", "SAME_LOWER")


def _taps(
    kernel: Sequence[int], counts: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Places]]:
    """Each element of the window with the places in the padded image that it lies on, one for each window."""
    for tap in itertools.product(*map(range, kernel)):
        axes = zip(tap, counts, strides, dilations, strict=True)
        yield tap, tuple(slice(r * gap, r * gap + (count - 1) * step + 1, step) for r, count, step, gap in axes)


def _divided(total: Sequence[int], auto_pad: str | None) -> tuple[list[int], list[int]]:
    """Padding before and after; of an odd one, SAME_UPPER has the larger part behind."""
    small, large = [size // 2 for size in total], [size - size // 2 for size in total]
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


def _given(pads: Sequence[int] | None, auto_pad: str | None, rank: int) -> tuple[list[int], list[int]]:
    """Padding before and after where it does not follow from sizes."""
    given = list(pads or [0] * (2 * rank)) if auto_pad != "VALID" else [0] * (2 * rank)
    return given[:rank], given[rank:]


def _with_bias(found: Array, bias: Array | None) -> Array:
    """Adds one number to each channel."""
    return found if bias is None else found + bias.reshape(-1, *[1] * (found.ndim - 2))


class Conv(onnx.reference.op_run.OpRun):
    """What each element of the filter meets, times it, added up."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        w: Array,
        b: Array | None = None,
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        **_: Any,
    ) -> tuple[Array]:
        image, kernel, groups = x.shape[2:], w.shape[2:], group or 1
        rank = len(image)
        steps, gaps = list(strides or [1] * rank), list(dilations or [1] * rank)
        extents = [(size - 1) * gap + 1 for size, gap in zip(kernel, gaps, strict=True)]
        if auto_pad in _SAME:
            sizes = zip(image, steps, extents, strict=True)
            before, after = _divided([max((-(-n // s) - 1) * s + e - n, 0) for n, s, e in sizes], auto_pad)
        else:
            before, after = _given(pads, auto_pad, rank)
        padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
        counts = [
            (size - extent) // step + 1 for size, extent, step in zip(padded.shape[2:], extents, steps, strict=True)
        ]
        filters: Any = w.reshape(groups, w.shape[0] // groups, w.shape[1], *kernel)
        total = np.zeros((len(x), groups, filters.shape[1], math.prod(counts)), np.result_type(x, w))
        for tap, places in _taps(kernel, counts, steps, gaps):
            met = padded[(slice(None), slice(None), *places)].reshape(len(x), groups, w.shape[1], -1)
            total += filters[(..., *tap)] @ met
        found = total.reshape(len(x), w.shape[0], *counts)
        return (_with_bias(found, b),)


class ConvTranspose(onnx.reference.op_run.OpRun):
    """Each element goes through the filter to the elements that its window covers.

    onnx's own also gives a group one output channel, and takes no padding from an `output_shape` alone.
    """

    op_domain = ""

    def _run(
        self,
        x: Array,
        w: Array,
        b: Array | None = None,
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        **_: Any,
    ) -> tuple[Array]:
        image, kernel, groups = x.shape[2:], w.shape[2:], group or 1
        rank = len(image)
        steps, gaps = list(strides or [1] * rank), list(dilations or [1] * rank)
        more = list(output_padding or [0] * rank)
        sizes = zip(image, kernel, steps, gaps, more, strict=True)
        whole = [step * (size - 1) + (taps - 1) * gap + 1 + added for size, taps, step, gap, added in sizes]
        asked = list(output_shape[-rank:]) if output_shape else None
        if asked is None and auto_pad in _SAME:
            asked = [size * step for size, step in zip(image, steps, strict=True)]
        if asked is not None:
            before, _after = _divided([max(n - m, 0) for n, m in zip(whole, asked, strict=True)], auto_pad)
        else:
            before, after = _given(pads, auto_pad, rank)
            asked = [n - head - tail for n, head, tail in zip(whole, before, after, strict=True)]
        channels = w.shape[1] * groups
        room = [max(n, head + size) for n, head, size in zip(whole, before, asked, strict=True)]
        total = np.zeros((len(x), channels, *room), np.result_type(x, w))
        filters: Any = w.reshape(groups, w.shape[0] // groups, w.shape[1], *kernel)
        split = x.reshape(len(x), groups, x.shape[1] // groups, -1)
        for tap, places in _taps(kernel, image, steps, gaps):
            part = filters[(..., *tap)].swapaxes(1, 2) @ split
            total[(slice(None), slice(None), *places)] += part.reshape(len(x), channels, *image)
        inner = tuple(slice(head, head + size) for head, size in zip(before, asked, strict=True))
        found = total[(slice(None), slice(None), *inner)]
        return (_with_bias(found, b),)


class MaxPool(onnx.reference.ops.op_max_pool.MaxPool):
    """The largest element of each window and where it is: of equal ones the first, as in onnx's own."""

    op_domain = ""

    def _pooled(
        self,
        x: Array,
        auto_pad: object,  # noqa: ARG002 (the padding follows from it already)
        ceil_mode: object,  # noqa: ARG002 (so do the counts)
        dilations: Sequence[int],
        kernel: Sequence[int],
        padding: Array,
        storage_order: int | None,
        strides: Sequence[int],
        counts: Sequence[int],
    ) -> tuple[Array, ...]:
        image = x.shape[2:]
        number = np.arange(math.prod(image)).reshape(image, order="F" if storage_order else "C")
        # Windows may reach beyond the padding, too, where counts are rounded up.
        reach = [
            (count - 1) * step + (size - 1) * gap + 1
            for count, step, size, gap in zip(counts, strides, kernel, dilations, strict=True)
        ]
        room = [
            (int(before), max(int(end - before - size), 0))
            for (before, _), end, size in zip(padding, reach, image, strict=True)
        ]
        values, numbers = np.pad(x, [(0, 0), (0, 0), *room]), np.pad(number, room, constant_values=-1)
        best = np.zeros((*x.shape[:2], *counts), x.dtype)
        where = np.full(best.shape, -1, np.int64)
        for _, places in _taps(kernel, counts, strides, dilations):
            met, at = values[(slice(None), slice(None), *places)], numbers[places]
            better = (at >= 0) & ((where < 0) | (met > best))
            best, where = np.where(better, met, best), np.where(better, at, where)
        if len(self.output) == 1:
            return (best,)
        planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(image))
        return best, where + planes * math.prod(image)

    _max_pool_1d = _max_pool_2d = _max_pool_3d = _pooled


class GatherElements(onnx.reference.op_run.OpRun):
    """onnx's own fails along axes of more than 64 elements where indices are fewer lines than the data has."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, axis: int | None = None) -> tuple[Array]:
        return (data[_places(indices, axis)],)


class ScatterElements(onnx.reference.op_run.OpRun):
    """Updates at their places, one after another where several have the same."""

    op_domain = ""

    def _run(
        self, data: Array, indices: Array, updates: Array, *, axis: int | None = None, reduction: str | None = None
    ) -> tuple[Array]:
        places, found = _places(indices, axis), data.copy()
        if reduction in (None, "none"):
            found[places] = updates
        else:
            ufuncs = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
            ufuncs[reduction].at(found, places, updates)
        return (found,)


def _places(indices: Array, axis: int | None) -> tuple[Array, ...]:
    """The elements that indices along an axis stand for; along others they lie where the indices do."""
    places: list[Array] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    places[axis or 0] = indices
    return tuple(places)


WINDOW_OPERATORS = (Conv, ConvTranspose, GatherElements, MaxPool, ScatterElements)
