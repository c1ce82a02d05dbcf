"""Operators over windows and places, which `onnx.reference` walks element by element in Python: here axis by axis.

At window p of an axis, element r of the window lies on element p * stride + r * dilation - before of the image.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx.reference.op_run

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


def _at(x: Array, places: Places) -> Array:
    """The elements at places of the last axes."""
    index: Any = (..., *places)
    return np.asarray(x[index])


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


@dataclasses.dataclass(frozen=True)
class _Windows:
    """Windows of a pooling; lists have an entry for each axis of the image.

    Attributes:
        counts: how many there are.
        before: padding in front.
        after: padding behind that is asked for.
        beyond: padding behind that the last window reaches into.
        taps: for each element of the window where it lies in the padded image.
    """

    counts: list[int]
    before: list[int]
    after: list[int]
    beyond: list[int]
    taps: list[Places]

    @classmethod
    def of(cls, image: Sequence[int], kernel: Sequence[int], given: Mapping[str, Any]) -> _Windows:
        """The windows that attributes of a pooling ask for."""
        rank, auto_pad = len(kernel), given.get("auto_pad")
        steps, gaps = (list(given.get(name) or [1] * rank) for name in ("strides", "dilations"))
        extents = [(size - 1) * gap + 1 for size, gap in zip(kernel, gaps, strict=True)]
        if auto_pad in _SAME:
            counts = [-(-size // step) for size, step in zip(image, steps, strict=True)]
            axes = zip(image, counts, steps, extents, strict=True)
            before, after = _divided([max((n - 1) * s + e - size, 0) for size, n, s, e in axes], auto_pad)
        else:
            before, after = _given(given.get("pads"), auto_pad, rank)
            counts = []
            for size, head, tail, step, extent in zip(image, before, after, steps, extents, strict=True):
                room = size + head + tail - extent
                count = room // step + 1
                # A window that starts behind the image and what is added to it is none.
                more = bool(given.get("ceil_mode")) and room % step > 0 and count * step < size + head
                counts.append(count + more)
        reach = [(n - 1) * s + e for n, s, e in zip(counts, steps, extents, strict=True)]
        beyond = [max(end - head - size, 0) for end, head, size in zip(reach, before, image, strict=True)]
        return cls(counts, before, after, beyond, [places for _, places in _taps(kernel, counts, steps, gaps)])

    def padded(self, x: Array, value: float = 0) -> Array:
        """An array with all that windows reach into; of its axes the last are the image's."""
        pads = [(0, 0)] * (x.ndim - len(self.counts)) + list(zip(self.before, self.beyond, strict=True))
        return np.pad(x, pads, constant_values=value)

    def total(self, x: Array) -> Array:
        """The sum over each window."""
        padded = self.padded(x)
        return np.asarray(sum((_at(padded, places) for places in self.taps[1:]), _at(padded, self.taps[0])))


class AveragePool(onnx.reference.op_run.OpRun):
    """The mean of each window, with or without its padding.

    onnx's own, as that of LpPool, refuses counts that are rounded up where padding follows from sizes.
    """

    op_domain = ""

    def _run(self, x: Array, *, kernel_shape: Sequence[int], **given: Any) -> tuple[Array]:
        windows = _Windows.of(x.shape[2:], kernel_shape, given)
        counted: Array = np.ones(x.shape[2:], x.dtype)
        if given.get("count_include_pad"):
            whole = windows.padded(counted, 1)
            # What windows reach into only since their number is rounded up does not count.
            ends = zip(x.shape[2:], windows.before, windows.after, strict=True)
            for axis, end in enumerate(size + head + tail for size, head, tail in ends):
                whole[(slice(None),) * axis + (slice(end, None),)] = 0
            count = sum(whole[places] for places in windows.taps)
        else:
            count = windows.total(counted)
        return (np.asarray(windows.total(x) / count, x.dtype),)


class LpPool(onnx.reference.op_run.OpRun):
    """The norm of each window."""

    op_domain = ""

    def _run(self, x: Array, *, kernel_shape: Sequence[int], p: int | None = None, **given: Any) -> tuple[Array]:
        power = 2 if p is None else p
        total = _Windows.of(x.shape[2:], kernel_shape, given).total(np.abs(x) ** power)
        return (np.asarray(total ** (1 / power), x.dtype),)


class MaxPool(onnx.reference.op_run.OpRun):
    """The largest element of each window and where it is: of equal ones the first."""

    op_domain = ""

    def _run(
        self, x: Array, *, kernel_shape: Sequence[int], storage_order: int | None = None, **given: Any
    ) -> tuple[Array, ...]:
        image = x.shape[2:]
        windows = _Windows.of(image, kernel_shape, given)
        number = np.arange(math.prod(image)).reshape(image, order="F" if storage_order else "C")
        values, numbers = windows.padded(x), windows.padded(number, -1)
        best = np.zeros((*x.shape[:2], *windows.counts), x.dtype)
        where = np.full(best.shape, -1, np.int64)
        for places in windows.taps:
            met, at = _at(values, places), numbers[places]
            better = (at >= 0) & ((where < 0) | (met > best))
            best, where = np.where(better, met, best), np.where(better, at, where)
        if len(self.output) == 1:
            return (best,)
        planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(image))
        return best, where + planes * math.prod(image)


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


WINDOW_OPERATORS = (AveragePool, Conv, ConvTranspose, GatherElements, LpPool, MaxPool, ScatterElements)
