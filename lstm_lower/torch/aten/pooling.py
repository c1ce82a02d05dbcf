"""Pools: means and maxima of windows of images, of a given size or of a given number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.torch.aten.layers import of_each_axis, rank_of, with_batch
from lstm_lower.torch.aten.registry import AtenCall, Size, translates
from lstm_lower.torch.aten.sizes import formula
from lstm_lower.torch.aten.tracing import operator, traces

aten = torch.ops.aten

INT64 = ir.DataType.INT64


# Traces of windows that hold all elements along some axes, and one along others, would fix sizes; and so would all
# of maxima along one axis.


def _whole_axes(x: Tensor, dims: int, kernel: Any, stride: Any, padding: Any, options: Sequence[bool]) -> list[int]:
    """The axes along which one window holds all elements, if it holds one along the others; none of known size."""
    if any(options) or any(width != 0 for width in of_each_axis(padding, dims)):
        return []
    axes: list[int] = []
    given = (of_each_axis(value, dims) for value in (kernel, stride or kernel))
    for axis, width, step in zip(range(-dims, 0), *given, strict=True):
        size: Any = x.shape[axis]
        # Sizes are compared as formulas: a comparison of numbers would fix them.
        if formula(width) == formula(size):
            axes.append(axis)
        elif not (isinstance(width, int) and isinstance(step, int) and width == step == 1):
            return []
    return axes if any(isinstance(x.shape[axis], torch.SymInt) for axis in axes) else []


def _traced_maxima(dims: int) -> Callable[..., Any]:
    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        dilated = any(x != 1 for x in of_each_axis(dilation, dims))
        if whole := _whole_axes(input, dims, kernel_size, stride, padding, [dilated, return_indices]):
            largest = input
            for axis in reversed(whole):
                largest = torch.max(largest, axis, keepdim=True).values
            return largest
        if dims > 1:
            return NotImplemented
        one = [of_each_axis(x, 1)[0] for x in (kernel_size, stride or kernel_size, padding, dilation)]
        windows = [(beside, x) for beside, x in zip((1, 1, 0, 1), one, strict=True)]
        images: Callable[..., Any] = functional.max_pool2d
        results = images(input.unsqueeze(-2), *windows, ceil_mode=ceil_mode, return_indices=return_indices)
        return tuple(x.squeeze(-2) for x in results) if return_indices else results.squeeze(-2)

    return pool


def _traced_means(dims: int) -> Callable[..., Any]:
    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        whole = _whole_axes(input, dims, kernel_size, stride, padding, [divisor_override is not None])
        return input.mean(whole, keepdim=True) if whole else NotImplemented

    return pool


traces(torch.max_pool1d, functional.max_pool1d)(_traced_maxima(1))
traces(functional.max_pool2d)(_traced_maxima(2))
traces(functional.max_pool3d)(_traced_maxima(3))
traces(functional.avg_pool1d)(_traced_means(1))
traces(functional.avg_pool2d)(_traced_means(2))
traces(functional.avg_pool3d)(_traced_means(3))


# Maxima. Of equal elements the first one is taken, as PyTorch does.


def _largest(
    n: AtenCall,
    dims: int,
    x: Expr,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    *,
    indices: bool = False,
) -> list[Expr]:
    """The largest element of each window and, if asked for, its place in the image, counted over all axes."""
    sizes = of_each_axis(kernel, dims)
    strides = of_each_axis(stride, dims) or sizes
    pads = of_each_axis(padding, dims)
    attributes = {
        "kernel_shape": sizes,
        "strides": strides,
        "pads": pads + pads,
        "dilations": of_each_axis(dilation, dims),
        "ceil_mode": int(ceil_mode),
    }
    if not indices:
        return [with_batch(x, dims + 2, lambda x: n.b.op(std.MaxPool, x, **attributes))]
    alone = rank_of(x) < dims + 2
    values, places = n.b.ops(std.MaxPool, x.unsqueeze(0) if alone else x, outputs=2, **attributes)
    # ONNX counts over all images.
    plane = n.count(n.sizes(n.fake(0))[-dims:])
    places = places % places.like(plane)
    return [values.squeeze(0), places.squeeze(0)] if alone else [values, places]


def _largest_of_all(n: AtenCall, x: Expr, dims: int) -> list[Expr]:
    """The largest element of each image, and its place."""
    rank, sizes = rank_of(x), n.sizes(n.fake(0))
    lead = rank - dims
    flat = n.reshape(x, [*sizes[:lead], n.count(sizes[lead:])])
    place = n.b.op(std.ArgMax, flat, axis=lead, keepdims=1)
    most = n.b.op(std.GatherElements, flat, place, axis=lead)
    return [result.unsqueeze(*range(lead + 1, rank)) for result in (most, place)]


@translates(aten.max_pool1d.default)
def _max_pool1d(n: AtenCall, x: Expr, *options: Any) -> Expr:
    return _largest(n, 1, x, *options)[0]


@translates(aten.max_pool2d.default)
def _max_pool2d(n: AtenCall, x: Expr, *options: Any) -> Expr:
    return _largest(n, 2, x, *options)[0]


@translates(aten.max_pool3d.default)
def _max_pool3d(n: AtenCall, x: Expr, *options: Any) -> Expr:
    return _largest(n, 3, x, *options)[0]


@translates(aten.max_pool1d_with_indices.default)
def _max_pool1d_with_indices(n: AtenCall, x: Expr, *options: Any) -> list[Expr]:
    return _largest(n, 1, x, *options, indices=True)


@translates(aten.max_pool2d_with_indices.default)
def _max_pool2d_with_indices(n: AtenCall, x: Expr, *options: Any) -> list[Expr]:
    return _largest(n, 2, x, *options, indices=True)


@translates(aten.max_pool3d_with_indices.default)
def _max_pool3d_with_indices(n: AtenCall, x: Expr, *options: Any) -> list[Expr]:
    return _largest(n, 3, x, *options, indices=True)


def _largest_at(n: AtenCall, x: Expr, places: Sequence[Expr], lead: int) -> list[Expr]:
    """The largest of elements at given places, and where in the image it is.

    Args:
        n: the call.
        x: [..., S1, S2, ...].
        places: along each spatial axis [count, k], or of each channel [..., count, k].
        lead: how many axes of x are no spatial ones.
    """
    b, dims = n.b, len(places)
    own = rank_of(places[0]) - 2
    sizes = n.sizes(n.fake(0))[lead:]
    number: Expr | None = None
    for axis, (size, place) in enumerate(zip(sizes, places, strict=True)):
        # Counts of all axes, then elements of windows along all axes.
        spread = place.unsqueeze(*(own + k for k in range(2 * dims) if k not in (axis, dims + axis)))
        number = spread if number is None else number * size + spread
    assert number is not None
    counts = n.shape[lead:]
    flat = b.op(std.Reshape, number, b.concat([number.sizes().slice(0, own + dims, axis=0), b.ints(-1)], 0))
    lines = n.reshape(x, [*n.sizes(n.fake(0))[:lead], n.count(sizes)])
    if own:
        behind = b.op(std.Reshape, flat, b.concat([lines.sizes().slice(0, lead, axis=0), b.ints(-1)], 0))
        values = b.op(std.Reshape, b.op(std.GatherElements, lines, behind, axis=lead), flat.sizes())
    else:
        values = lines.take(flat, axis=lead)
        flat = b.op(std.Expand, flat, values.sizes())
    last = lead + len(counts)
    chosen = b.op(std.ArgMax, values, axis=last, keepdims=1)
    return [b.op(std.GatherElements, every, chosen, axis=last).squeeze(last) for every in (values, flat)]


def _adaptive_places(n: AtenCall, size: Size, count: Size) -> Expr:
    """The elements of each of so many windows over an axis, the last one again where there are fewer [count, k]."""
    first, end = _adaptive_bounds(n, size, count)
    longest: Size
    if isinstance(size, int) and isinstance(count, int):
        longest = (size + count - 1) // count + 1
    else:
        longest = (size + n.scalar(count, INT64) - 1) / n.scalar(count, INT64) + 1
    return (first.unsqueeze(1) + up_to(n.b, longest).unsqueeze(0)).minimum((end - 1).unsqueeze(1))


def _adaptive_bounds(n: AtenCall, size: Size, count: Size) -> tuple[Expr, Expr]:
    """The first element of each window and the one behind its last [count]."""
    if isinstance(size, int) and isinstance(count, int):
        windows = np.arange(count)
        return n.b.constant(windows * size // count), n.b.constant(((windows + 1) * size + count - 1) // count)
    numbers, divisor = up_to(n.b, count), n.scalar(count, INT64)
    return numbers * size / divisor, ((numbers + 1) * size + (divisor - 1)) / divisor


@translates(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def _adaptive_max_pool(n: AtenCall, x: Expr, counts: Sequence[Size]) -> list[Expr]:
    dims, sizes = len(counts), n.sizes(n.fake(0))
    if all(count == 1 for count in counts):
        return _largest_of_all(n, x, dims)
    places = [_adaptive_places(n, size, count) for size, count in zip(sizes[-dims:], counts, strict=True)]
    return _largest_at(n, x, places, rank_of(x) - dims)


# Windows begin at random places (Graham, 2014). The axis that each of the random numbers is of:
_AXES = {2: (1, 0), 3: (0, 1, 2)}


# PyTorch's own fix sizes.
@operator("fractional_max_pool(Tensor x, int[] kernel, SymInt[] counts, Tensor samples) -> (Tensor, Tensor)")
def _FRACTIONAL_MAX_POOL(  # noqa: N802
    x: Tensor, kernel: Sequence[int], counts: Sequence[Any], samples: Tensor
) -> tuple[Tensor, Tensor]:
    shape = [*x.shape[: -len(counts)], *counts]
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


def _traced_fractional_maxima(
    dims: int,
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    outer, sizes = list(input.shape[:-dims]), list(input.shape[-dims:])
    if output_size is None:
        ratios = of_each_axis(output_ratio, dims)
        output_size = [math.floor(size * ratio) for size, ratio in zip(sizes, ratios, strict=True)]
    if _random_samples is None:
        _random_samples = torch.rand([*([1, *outer][-2:]), dims], dtype=input.dtype)
    counts = of_each_axis(output_size, dims)
    results: Any = _FRACTIONAL_MAX_POOL(input, of_each_axis(kernel_size, dims), counts, _random_samples)
    return results if return_indices else results[0]


for _dims in (2, 3):
    _traced = functools.partial(_traced_fractional_maxima, _dims)
    traces(getattr(functional, f"fractional_max_pool{_dims}d"))(_traced)
    traces(getattr(functional, f"fractional_max_pool{_dims}d_with_indices"))(
        functools.partial(_traced, return_indices=True)
    )


@translates(_FRACTIONAL_MAX_POOL)
def _fractional_max_pool(n: AtenCall, x: Expr, kernel: Any, counts: Any, samples: Expr) -> list[Expr]:
    dims = len(counts)
    lead = rank_of(x) - dims
    sizes = n.sizes(n.fake(0))[lead:]
    shares = n.reshape(samples, [*n.sizes(n.fake(0))[:lead], dims])
    places = []
    for axis, (size, count, width) in enumerate(zip(sizes, counts, of_each_axis(kernel, dims), strict=True)):
        share = shares.take(_AXES[dims].index(axis), axis=lead).unsqueeze(-1)
        starts = _starts(n, share, size, count, width)
        places.append(starts.unsqueeze(-1) + up_to(n.b, width))
    return _largest_at(n, x, places, lead)


def _starts(n: AtenCall, share: Expr, size: Size, count: Size, width: int) -> Expr:
    """Where windows begin along an axis [..., count]; the last one ends where the axis does."""
    last, dtype = size - width, share.dtype
    between = n.scalar(count - 1, dtype).maximum(1)
    step = n.scalar(last, dtype) / between
    numbers = up_to(n.b, count)
    begins = ((numbers.cast(dtype) + share) * step).cast(INT64) - (share * step).cast(INT64)
    return n.b.where(numbers.equals(count - 1), n.scalar(last, INT64), begins)


@translates(aten.max_unpool2d.default, aten.max_unpool3d.default)
def _max_unpool(n: AtenCall, x: Expr, places: Expr, size: Sequence[Size], *_: Any) -> Expr:
    """Elements at their places in images, zeros elsewhere."""
    b, dims = n.b, len(size)
    lead = rank_of(x) - dims
    plane = n.count(n.shape[lead:])
    empty = b.fill(0, n.vector([*n.shape[:lead], plane]), x.dtype)
    rows = [n.reshape(value, [*n.shape[:lead], n.count(n.sizes(n.fake(0))[lead:])]) for value in (places, x)]
    return n.reshape(b.op(std.ScatterElements, empty, *rows, axis=lead), n.shape)


# Means.


@translates(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default)
def _avg_pool(
    n: AtenCall,
    x: Expr,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Expr:
    dims = 1 if n.node.target == aten.avg_pool1d.default else 2 if n.node.target == aten.avg_pool2d.default else 3
    sizes = of_each_axis(kernel, dims)
    strides = of_each_axis(stride, dims) or sizes
    pads = of_each_axis(padding, dims)
    if divisor is not None:
        padded = _with_room(n, x, sizes, strides, pads)
        means = with_batch(padded, dims + 2, lambda x: n.b.op(std.AveragePool, x, kernel_shape=sizes, strides=strides))
        factor: float = math.prod(sizes) / divisor
        return means * factor
    attributes = {
        "kernel_shape": sizes,
        "strides": strides,
        "pads": pads + pads,
        "ceil_mode": int(ceil_mode),
        "count_include_pad": int(count_include_pad),
    }
    return with_batch(x, dims + 2, lambda x: n.b.op(std.AveragePool, x, **attributes))


def _with_room(n: AtenCall, x: Expr, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> Expr:
    """An image with zeros around it, so that it just holds all windows."""
    dims, rank = len(kernel), rank_of(x)
    sizes = n.sizes(n.fake(0))[-dims:]
    after = []
    for k, (size, count) in enumerate(zip(sizes, n.shape[-dims:], strict=True)):
        missing = (count - 1) * stride[k] + kernel[k] - padding[k]
        after.append(missing - size if isinstance(size, int) else n.scalar(missing, INT64) - size)
    none: list[Size] = [0] * (rank - dims)
    return n.b.op(std.Pad, x, n.vector([*none, *padding, *none, *after]))


@translates(
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
    aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default,
)
def _adaptive_avg_pool(n: AtenCall, x: Expr, counts: Sequence[Size]) -> Expr:
    """Means of windows of which there is a given number; an element may be in two of them."""
    dims, rank = len(counts), rank_of(x)
    sizes = n.sizes(n.fake(0))[-dims:]
    if all(_divides(count, size) for size, count in zip(sizes, counts, strict=True)) and counts != [1] * dims:
        kernel = [
            size // count
            for size, count in zip(sizes, counts, strict=True)
            if isinstance(size, int) and isinstance(count, int)
        ]
        return with_batch(x, dims + 2, lambda x: n.b.op(std.AveragePool, x, kernel_shape=kernel, strides=kernel))
    for k, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if count != 1 and formula(n.fake(0).shape[k - dims]) != formula(n.results[0].shape[k - dims]):
            x = _means_along(n, x, rank - dims + k, size, count)
    alone = [rank - dims + k for k, count in enumerate(counts) if count == 1]
    return x.reduce(std.ReduceMean, alone)


def _divides(count: Size, size: Size) -> bool:
    return isinstance(count, int) and isinstance(size, int) and count > 0 and size % count == 0


def _means_along(n: AtenCall, x: Expr, axis: int, size: Size, count: Size) -> Expr:
    """A product with the table of which element is in which window."""
    first, end = (bound.unsqueeze(1) for bound in _adaptive_bounds(n, size, count))
    places = up_to(n.b, size)
    inside = ~(places < first) & (places < end)
    table = inside.cast(x.dtype) / (end - first).cast(x.dtype)
    last = rank_of(x) - 1
    if axis == last - 1:
        return table @ x
    return n.b.move_axis(n.b.move_axis(x, axis, last, last + 1) @ table.mT, last, axis, last + 1)
