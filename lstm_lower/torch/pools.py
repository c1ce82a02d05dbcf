"""PyTorch's operations on images whose sizes its exporter takes from the example, or whose options it leaves out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.torch.fractional_pools import FRACTIONAL_POOLS


def _of_each_axis(value: Any, dims: int) -> list[Any]:
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    return values * dims if len(values) == 1 else values


def _whole_axes(
    x: Tensor, dims: int, kernel_size: Any, stride: Any, padding: Any, options: Sequence[bool]
) -> list[int]:
    """The axes along which one window holds all places, if it holds one place along the others; none of known size."""
    if any(options) or any(width != 0 for width in _of_each_axis(padding, dims)):
        return []
    found: list[int] = []
    given = (_of_each_axis(value, dims) for value in (kernel_size, stride or kernel_size))
    for axis, kernel, step in zip(range(-dims, 0), *given, strict=True):
        size: Any = x.shape[axis]
        # Sizes are compared as formulas: a comparison of numbers would fix them.
        if str(kernel) == str(size):
            found.append(axis)
        elif not (isinstance(kernel, int) and isinstance(step, int) and kernel == step == 1):
            return []
    return found if any(isinstance(x.shape[axis], torch.SymInt) for axis in found) else []


def _max_pool(dims: int) -> Callable[..., Any]:
    """The largest element of each window."""

    def pool(
        input: Tensor,  # noqa: A002
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        dilated = any(x != 1 for x in _of_each_axis(dilation, dims))
        if whole := _whole_axes(input, dims, kernel_size, stride, padding, [dilated, return_indices]):
            largest = input
            for axis in reversed(whole):
                largest = torch.max(largest, axis, keepdim=True).values
            return largest
        if dims > 1:
            return NotImplemented
        # As a pooling of images, whose length a trace leaves open.
        one = [_of_each_axis(x, 1)[0] for x in (kernel_size, stride or kernel_size, padding, dilation)]
        windows = [(beside, x) for beside, x in zip((1, 1, 0, 1), one, strict=True)]
        images: Callable[..., Any] = functional.max_pool2d
        found = images(input.unsqueeze(-2), *windows, ceil_mode=ceil_mode, return_indices=return_indices)
        return tuple(x.squeeze(-2) for x in found) if return_indices else found.squeeze(-2)

    return pool


def _adaptive_mean(dims: int) -> Callable[..., Any]:
    """Means of windows of which there is a given number; PyTorch decomposes these for the example's sizes alone."""

    def pool(input: Tensor, output_size: Any) -> Any:  # noqa: A002
        counts = _of_each_axis(output_size, dims)
        sizes: list[Any] = list(input.shape[-dims:])
        known = [
            isinstance(size, int) or (isinstance(n, int) and n == 1) for n, size in zip(counts, sizes, strict=True)
        ]
        # The exporter has no formula for several windows of volumes.
        if all(known) and (dims < 3 or all(isinstance(n, int) and n == 1 for n in counts)):
            return NotImplemented
        x = input
        for axis, count, size in zip(range(-dims, 0), counts, sizes, strict=True):
            if count is None:
                continue
            places, windows = torch.arange(size), torch.arange(count).unsqueeze(1)
            first, end = windows * size // count, ((windows + 1) * size + count - 1) // count
            inside = ((places >= first) & (places < end)).to(x.dtype) / (end - first).to(x.dtype)
            x = torch.matmul(x.movedim(axis, -1), inside.transpose(0, 1)).movedim(-1, axis)
        return x

    return pool


def _mean_pool(plain: Callable[..., Tensor], dims: int) -> Callable[..., Any]:
    """The mean of each window; the exporter leaves out that sums are to be over a given number."""

    def pool(
        input: Tensor,  # noqa: A002
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,  # noqa: ARG001
        divisor_override: int | None = None,
    ) -> Any:
        if whole := _whole_axes(input, dims, kernel_size, stride, padding, [divisor_override is not None]):
            return input.mean(whole, keepdim=True)
        if divisor_override is None:
            return NotImplemented
        if ceil_mode:
            raise UnsupportedOpError("avg_pool requires either ceil_mode or divisor_override, got both; pad beforehand")
        elements = math.prod(_of_each_axis(kernel_size, dims))
        means = plain(input, kernel_size, stride, padding, False, True)  # noqa: FBT003
        return means * (elements / divisor_override)

    return pool


def _interpolate(
    input: Tensor,  # noqa: A002
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,  # noqa: ARG001
    recompute_scale_factor: bool | None = None,  # noqa: ARG001
    antialias: bool = False,  # noqa: ARG001
) -> Any:
    """By areas that is the means of windows, which PyTorch would call unseen."""
    if mode != "area":
        return NotImplemented
    dims = input.dim() - 2
    if size is None:
        factors = _of_each_axis(scale_factor, dims)
        size = [math.floor(n * factor) for n, factor in zip(input.shape[2:], factors, strict=True)]
    return _adaptive_mean(dims)(input, size)


def _convolution(input: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **options: Any) -> Any:  # noqa: A002
    """Without a bias, for which the exporter writes one of a wrong shape."""
    if bias is not None:
        return NotImplemented
    return functional.conv3d(input, weight, weight.new_zeros(weight.shape[0]), *rest, **options)


def _affine_grid(theta: Tensor, size: Sequence[Any], align_corners: bool | None = None) -> Tensor:
    """Places of an image's elements, moved (Jaderberg et al., 2015); PyTorch's own takes sizes as numbers only."""
    dims = len(size) - 2

    def centres(count: Any) -> Tensor:
        places = torch.arange(count).to(theta.dtype)
        if align_corners:
            between = torch.scalar_tensor(count, dtype=theta.dtype) - 1
            return places * 2 / between.clamp(min=1) - between.clamp(max=1)
        return (places * 2 + 1) / torch.scalar_tensor(count, dtype=theta.dtype) - 1

    along = [
        centres(count).reshape([-1 if axis == place else 1 for axis in range(dims)])
        for place, count in enumerate(size[2:])
    ]
    # Rows of theta stand for x, y and z, the last axis first; its last column moves.
    columns = theta.reshape(theta.shape[0], *[1] * dims, dims, dims + 1)
    moved: Tensor = columns[..., dims]
    for column, places in enumerate(reversed(along)):
        moved = moved + places.unsqueeze(-1) * columns[..., column]
    return moved


def _with_batch(function: Callable[..., Tensor], rank: int) -> Callable[..., Any]:
    """Of a single image, of which the exporter takes the axes for those of a batch."""

    def called(input: Tensor, *args: Any, **options: Any) -> Any:  # noqa: A002
        return NotImplemented if input.dim() == rank else function(input.unsqueeze(0), *args, **options).squeeze(0)

    return called


POOLS: dict[Any, Callable[..., Any]] = {
    **FRACTIONAL_POOLS,
    torch.max_pool1d: _max_pool(1),
    functional.max_pool1d: _max_pool(1),
    functional.max_pool2d: _max_pool(2),
    functional.max_pool3d: _max_pool(3),
    functional.adaptive_avg_pool1d: _adaptive_mean(1),
    functional.adaptive_avg_pool2d: _adaptive_mean(2),
    functional.adaptive_avg_pool3d: _adaptive_mean(3),
    functional.avg_pool1d: _mean_pool(functional.avg_pool1d, 1),
    functional.avg_pool2d: _mean_pool(functional.avg_pool2d, 2),
    functional.avg_pool3d: _mean_pool(functional.avg_pool3d, 3),
    functional.affine_grid: _affine_grid,
    functional.conv3d: _convolution,
    functional.fold: _with_batch(functional.fold, 3),
    functional.interpolate: _interpolate,
    functional.unfold: _with_batch(functional.unfold, 4),
}
