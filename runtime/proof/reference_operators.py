"""Operators that `onnx.reference` computes differently from ONNX's specification, or in less than float64."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx.reference
import onnx.reference.op_run
import onnx.reference.ops.op_affine_grid
import onnx.reference.ops.op_batch_normalization
import onnx.reference.ops.op_erf
import onnx.reference.ops.op_global_max_pool
import onnx.reference.ops.op_grid_sample
import onnx.reference.ops.op_layer_normalization
import onnx.reference.ops.op_loop
import onnx.reference.ops.op_pad
import onnx.reference.ops.op_resize
import onnx.reference.ops.op_rms_normalization
import onnx.reference.ops.op_roi_align
import onnx.reference.ops.op_stft
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference.ops._quant_utils import reshape_input

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.inference import is_disputed, taken
from lstm_lower.runtime.proof.oracles.recurrent_operators import RECURRENT_OPERATORS

# Operators over windows and places, which `onnx.reference` walks element by element in Python: here axis by axis.
# At window p of an axis, element r of the window lies on element p * stride + r * dilation - before of the image.


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


class ConvTranspose(onnx.reference.op_run.OpRun):
    """Each element goes through the filter to the elements that its window covers.

    onnx's own also gives a group one output channel, and takes no padding from an `output_shape` alone.
    """

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
        result = total[(slice(None), slice(None), *inner)]
        return (_with_bias(result, b),)


@dataclasses.dataclass(frozen=True)
class _Windows:
    """Windows of a convolution or a pooling; lists have an entry for each axis of the image.

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
        """The windows that attributes ask for."""
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


class Conv(onnx.reference.op_run.OpRun):
    """Products of each element of the filter with what it meets, added up."""

    def _run(
        self, x: Array, w: Array, b: Array | None = None, *, group: int | None = None, **given: Any
    ) -> tuple[Array]:
        windows, groups = _Windows.of(x.shape[2:], w.shape[2:], given), group or 1
        padded = windows.padded(x)
        filters: Any = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        total = np.zeros((len(x), groups, filters.shape[1], math.prod(windows.counts)), np.result_type(x, w))
        for tap, places in zip(np.ndindex(*w.shape[2:]), windows.taps, strict=True):
            total += filters[(..., *tap)] @ _at(padded, places).reshape(len(x), groups, w.shape[1], -1)
        return (_with_bias(total.reshape(len(x), w.shape[0], *windows.counts), b),)


class AveragePool(onnx.reference.op_run.OpRun):
    """The mean of each window, with or without its padding.

    onnx's own, as that of LpPool, refuses counts that are rounded up where padding follows from sizes.
    """

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

    def _run(self, x: Array, *, kernel_shape: Sequence[int], p: int | None = None, **given: Any) -> tuple[Array]:
        power = 2 if p is None else p
        total = _Windows.of(x.shape[2:], kernel_shape, given).total(np.abs(x) ** power)
        return (np.asarray(total ** (1 / power), x.dtype),)


class MaxPool(onnx.reference.op_run.OpRun):
    """The largest element of each window and where it is: of equal ones the first."""

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

    def _run(self, data: Array, indices: Array, axis: int | None = None) -> tuple[Array]:
        return (data[_places(indices, axis)],)


class ScatterElements(onnx.reference.op_run.OpRun):
    """Updates at their places, one after another where several have the same."""

    def _run(
        self, data: Array, indices: Array, updates: Array, *, axis: int | None = None, reduction: str | None = None
    ) -> tuple[Array]:
        places, result = _places(indices, axis), data.copy()
        if reduction in (None, "none"):
            result[places] = updates
        else:
            ufuncs = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
            ufuncs[reduction].at(result, places, updates)
        return (result,)


def _places(indices: Array, axis: int | None) -> tuple[Array, ...]:
    """The elements that indices along an axis stand for; along others they lie where the indices do."""
    places: list[Array] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    places[axis or 0] = indices
    return tuple(places)


WINDOW_OPERATORS = (AveragePool, Conv, ConvTranspose, GatherElements, LpPool, MaxPool, ScatterElements)


# The opset in which RoiAlign got its coordinate_transformation_mode.
_SHIFTED_REGIONS = 16
# That from which scales of GroupNormalization are of channels.
_SCALES_OF_CHANNELS = 21
# Axes of a signal whose elements are numbers, not pairs of them.
_REAL_SIGNALS = 2
# What is added to deviations, as ONNX's function has it.
_FLOOR_OF_DEVIATIONS = 1e-9
# The stash_type that onnx.reference takes.
_ACCEPTED_STASH = 1


class AffineGrid(onnx.reference.ops.op_affine_grid.AffineGrid):
    """onnx's own rounds to float32."""

    def _run(self, theta: Array, size: Array, align_corners: int | None = None) -> tuple[Array]:
        places = onnx.reference.ops.op_affine_grid.construct_original_grid(size[2:], align_corners or 0)  # type: ignore[no-untyped-call]
        return (np.einsum("nij,...j->n...i", theta, places),)


class BatchNormalization(onnx.reference.ops.op_batch_normalization.BatchNormalization_14):
    """onnx's own takes statistics of the batch in the forms before 14, too, which have no training mode."""

    def _run(self, *operands: Array, training_mode: int | None = None, **numbers: float) -> tuple[Array, ...]:
        given = {**numbers, "training_mode": training_mode or 0}
        result: tuple[Array, ...] = super()._run(*operands, **given)  # type: ignore[no-untyped-call]
        return result


class BitCast(onnx.reference.op_run.OpRun):
    """onnx's own reads the bits of float64, once a model is widened."""

    def _run(self, x: Array, to: int, narrow: int | None = None) -> tuple[Array]:
        kept = x if narrow is None else x.astype(tensor_dtype_to_np_dtype(narrow))
        result = kept.view(tensor_dtype_to_np_dtype(to))
        return (result.astype(np.float64) if narrow is not None and result.dtype.kind == "f" else result,)


class DequantizeLinear(onnx.reference.op_run.OpRun):
    """onnx's own is missing below opset 19, and rounds int32 to float32."""

    def _run(
        self,
        x: Array,
        scale: Array,
        zero_point: Array | None = None,
        axis: int | None = None,
        block_size: int | None = None,
        output_dtype: int | None = None,
    ) -> tuple[Array]:
        place = (1 if axis is None else axis, block_size or 0)
        zero = 0 if zero_point is None else reshape_input(zero_point, x.shape, *place).astype(np.float64)
        result = (x.astype(np.float64) - zero) * reshape_input(scale, x.shape, *place)
        kept = not output_dtype or scale.dtype == np.float64
        return (result.astype(scale.dtype if kept else tensor_dtype_to_np_dtype(output_dtype or 0)),)


class Erf(onnx.reference.ops.op_erf.Erf):
    """onnx's own computes in float32."""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.vectorize(math.erf, otypes=[np.float64])(x),)


class GlobalLpPool(onnx.reference.op_run.OpRun):
    """onnx has none."""

    def _run(self, x: Array, p: int | None = None) -> tuple[Array]:
        power = 2 if p is None else p
        total = (np.abs(x) ** power).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return (np.asarray(total ** (1 / power), x.dtype),)


class GlobalMaxPool(onnx.reference.ops.op_global_max_pool.GlobalMaxPool):
    """onnx's own takes the largest over two axes, of whatever rank its operand is."""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GridSample(onnx.reference.ops.op_grid_sample.GridSample):
    """onnx's own rounds places to float32."""

    def _gs_denormalize_coordinates(self, n: Array, dims: Array, align_corners: bool) -> Array:
        placed: Callable[..., float] = self._gs_denormalize
        return np.array(
            [placed(n=v, length=size, align_corners=align_corners) for v, size in zip(n, dims, strict=True)]
        )


class GroupNormalization(onnx.reference.op_run.OpRun):
    """onnx has none with scales of groups, as they are before 21."""

    def _run(self, x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float, **_: Any) -> tuple[Array]:
        if self.run_params["opsets"][""] < _SCALES_OF_CHANNELS:
            scale, bias = (np.repeat(each, x.shape[1] // num_groups) for each in (scale, bias))
        groups = x.reshape(x.shape[0], num_groups, -1)
        centered = groups - groups.mean(axis=2, keepdims=True)
        normal = centered / np.sqrt((centered**2).mean(axis=2, keepdims=True) + epsilon)
        along = [-1, *[1] * (x.ndim - 2)]
        return (normal.reshape(x.shape) * scale.reshape(along) + bias.reshape(along),)


class LRN(onnx.reference.op_run.OpRun):
    """onnx's own leaves out the last channel of each neighbourhood."""

    def _run(self, x: Array, *, size: int, alpha: float, beta: float, bias: float) -> tuple[Array]:
        before, after = (size - 1) // 2, size // 2
        squares = np.pad(x**2, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        total = np.lib.stride_tricks.sliding_window_view(squares, size, axis=1).sum(-1)
        return (np.asarray(x / (bias + alpha / size * total) ** beta, x.dtype),)


class LayerNormalization(onnx.reference.ops.op_layer_normalization.LayerNormalization):
    """onnx's own refuses every stash_type but float32, and computes in its operand's dtype."""

    def _run(self, *operands: Array, **given: Any) -> tuple[Array, ...]:
        result: tuple[Array, ...] = super()._run(*operands, **{**given, "stash_type": _ACCEPTED_STASH})  # type: ignore[no-untyped-call]
        return result


class Loop(onnx.reference.ops.op_loop.Loop):
    """onnx's own reads a missing condition as false, and concatenates scan outputs instead of stacking them."""

    body: Any
    _run_body: Callable[..., list[Any]]

    def _run(
        self,
        M: Array | None,
        cond: Array | None,
        *states: Any,
        context: Mapping[str, Any] | None = None,
        body: object = None,  # noqa: ARG002 (the base class has made it an evaluator)
        attributes: Any = None,
        bindings: Any = None,
    ) -> tuple[Any, ...]:
        names = self.body.input_names
        carried: list[Any] = list(states)
        stacks: list[list[Array]] = [[] for _ in range(self.K)]
        goes_on = cond is None or bool(cond)
        step = 0
        while goes_on and (M is None or step < M):
            given = dict(zip(names, [np.int64(step), np.bool_(goes_on), *carried], strict=True))
            results = self._run_body({**(context or {}), **given}, attributes=attributes, bindings=bindings)
            goes_on, carried = bool(results[0]), results[1 : 1 + self.N]
            for stack, result in zip(stacks, results[1 + self.N :], strict=True):
                stack.append(result)
            step += 1
        if not step and stacks:
            raise InvalidModelError("a Loop with scan outputs requires one step or more, whose shapes they have")
        return (*carried, *(np.stack(stack) for stack in stacks))


class LpNormalization(onnx.reference.op_run.OpRun):
    """onnx's own adds up numbers instead of their magnitudes, and divides by zero."""

    def _run(self, x: Array, axis: int | None = None, p: int | None = None) -> tuple[Array]:
        along = -1 if axis is None else axis
        norm = np.linalg.norm(x, 2 if p is None else p, along, keepdims=True)
        return (np.asarray(np.divide(x, norm, out=np.zeros_like(x), where=norm != 0), x.dtype),)


class Mean(onnx.reference.op_run.OpRun):
    """onnx's own fails where the first operand is smaller than the sum."""

    def _run(self, *operands: Array) -> tuple[Array]:
        return (np.asarray(sum(operands[1:], operands[0]) / len(operands), operands[0].dtype),)


class MeanVarianceNormalization(onnx.reference.op_run.OpRun):
    """onnx's own is a function with constants in float32."""

    def _run(self, x: Array, axes: Sequence[int]) -> tuple[Array]:
        centered = x - x.mean(tuple(axes), keepdims=True)
        return (centered / (np.sqrt((centered**2).mean(tuple(axes), keepdims=True)) + _FLOOR_OF_DEVIATIONS),)


class Optional(onnx.reference.op_run.OpRun):
    """onnx's own makes a list of one element, which its readers do not take apart."""

    def _run(self, x: Any = None, **_: Any) -> tuple[Any]:
        return (x,)


class Pad(onnx.reference.ops.op_pad.Pad_18):
    """onnx's own takes no negative pads, which cut elements off."""

    def _run(
        self, data: Array, pads: Array, constant_value: Any = None, axes: Any = None, mode: str | None = None
    ) -> tuple[Array]:
        places = list(range(data.ndim)) if axes is None else [int(axis) % data.ndim for axis in axes]
        cut = [slice(None)] * data.ndim
        for place, before, after in zip(places, pads[: len(places)], pads[len(places) :], strict=True):
            cut[place] = slice(max(-before, 0), data.shape[place] - max(-after, 0))
        result: tuple[Array] = super()._run(  # type: ignore[no-untyped-call]
            data[tuple(cut)], np.maximum(pads, 0), constant_value, axes, mode=mode
        )
        return result


class RMSNormalization(onnx.reference.ops.op_rms_normalization.RMSNormalization):
    """onnx's own refuses every stash_type but float32, and computes in its operand's dtype."""

    def _run(self, *operands: Array, **given: Any) -> tuple[Array]:
        result: tuple[Array] = super()._run(*operands, **{**given, "stash_type": _ACCEPTED_STASH})  # type: ignore[no-untyped-call]
        return result


class Resize(onnx.reference.ops.op_resize.Resize):
    """onnx's own aligns the corners with a size that is not rounded, where scales are given."""

    def _run(self, x: Array, *operands: Any, **given: Any) -> tuple[Array]:  # type: ignore[override]
        roi, scales, sizes = (*operands, None, None, None)[:3]
        if given.get("coordinate_transformation_mode") == "align_corners" and scales is not None:
            axes = range(x.ndim) if given.get("axes") is None else given["axes"]
            resized = np.array([x.shape[axis] for axis in axes])
            scales, sizes = None, np.floor(resized * scales).astype(np.int64)
        result: tuple[Array] = super()._run(x, roi, scales, sizes, **given)
        return result


class RoiAlign(onnx.reference.ops.op_roi_align.RoiAlign):
    """onnx's own shifts regions by half an element in the forms before 16, too."""

    def _run(self, *operands: Array, coordinate_transformation_mode: str | None = None, **given: Any) -> tuple[Array]:
        shifts = self.run_params["opsets"][""] >= _SHIFTED_REGIONS
        mode = coordinate_transformation_mode if shifts else "output_half_pixel"
        result: tuple[Array] = super()._run(*operands, **{**given, "coordinate_transformation_mode": mode})  # type: ignore[no-untyped-call]
        return result


class Shape(onnx.reference.op_run.OpRun):
    """onnx's own does not clamp an end before the first axis."""

    def _run(self, x: Array, start: int | None = None, end: int | None = None) -> tuple[Array]:
        first, last = (
            default if bound is None else min(max(bound + x.ndim if bound < 0 else bound, 0), x.ndim)
            for bound, default in ((start, 0), (end, x.ndim))
        )
        return (np.asarray(x.shape[first:last], np.int64),)


class Slice(onnx.reference.op_run.OpRun):
    """onnx's own clamps no start of a walk backwards; of the largest ends of one onnxruntime makes the beginning."""

    def _run(
        self, x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
    ) -> tuple[Array]:
        steps = np.ones_like(starts) if steps is None else steps
        for axis, *bounds, step in zip(range(x.ndim) if axes is None else axes, starts, ends, steps, strict=False):
            size = x.shape[axis]
            start, end, by = int(bounds[0]), int(bounds[1]), int(step)
            places = taken(size, start, -size - 1 if is_disputed(end, by) else end, by)
            x = np.take(x, np.asarray(places, np.int64), axis=axis)
        return (x,)


class STFT(onnx.reference.ops.op_stft.STFT):
    """onnx's own finds no frames in signals of two axes, which onnxruntime takes for real ones."""

    def _run(self, x: Array, *operands: Array, **given: Any) -> tuple[Array]:
        x = x[..., np.newaxis] if x.ndim == _REAL_SIGNALS else x
        result: tuple[Array] = super()._run(x, *operands, **given)  # type: ignore[no-untyped-call]
        return result


class Softsign(onnx.reference.op_run.OpRun):
    """onnx's own fails at single numbers."""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.asarray(x / (1 + np.abs(x)), x.dtype),)


class Unique(onnx.reference.op_run.OpRun):
    """onnx's own fails at unsorted elements of some shapes."""

    def _run(self, x: Array, axis: int | None = None, sorted: int | None = None) -> tuple[Array, ...]:  # noqa: A002 (ONNX's name)
        result, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        order = np.arange(len(first)) if sorted is None or sorted else np.argsort(first)
        places = np.argsort(order)[inverse.ravel()]
        results = (np.take(result, order, axis or 0), first[order], places, counts[order])
        return results[: len(self.onnx_node.output)]


MENDED = (
    AffineGrid,
    BatchNormalization,
    BitCast,
    DequantizeLinear,
    Erf,
    GlobalLpPool,
    GlobalMaxPool,
    GridSample,
    GroupNormalization,
    LRN,
    LayerNormalization,
    Loop,
    LpNormalization,
    Mean,
    MeanVarianceNormalization,
    Optional,
    Pad,
    RMSNormalization,
    Resize,
    RoiAlign,
    STFT,
    Shape,
    Slice,
    Softsign,
    Unique,
    *RECURRENT_OPERATORS,
    *WINDOW_OPERATORS,
)
