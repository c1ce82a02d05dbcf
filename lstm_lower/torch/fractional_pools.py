"""Pools whose windows begin at random places (Graham, 2014), by indices: PyTorch's exporter has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# The axis that each of the random numbers is of, counted from the front.
_AXES = {2: (1, 0), 3: (0, 1, 2)}


def _of_each_axis(value: Any, dims: int) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value] * dims


def _starts(sample: Tensor, size: Any, count: Any, kernel: int) -> Tensor:
    """Where windows begin along an axis, [..., count], of a number [...]; the last one ends where the axis does."""
    number, last = torch.arange(count), size - kernel
    step = torch.scalar_tensor(last, dtype=sample.dtype) / torch.scalar_tensor(count - 1, dtype=sample.dtype)
    sample = sample.unsqueeze(-1)
    found = ((number + sample) * step).long() - (sample * step).long()
    return torch.where(number == count - 1, torch.scalar_tensor(last, dtype=torch.int64), found)


def _pool(dims: int) -> Callable[..., Any]:
    def pool(
        input: Tensor,  # noqa: A002
        kernel_size: int | Sequence[int],
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        outer, sizes = list(input.shape[:-dims]), list(input.shape[-dims:])
        kernels = _of_each_axis(kernel_size, dims)
        if output_size is None:
            ratios = _of_each_axis(output_ratio, dims)
            output_size = [math.floor(size * ratio) for size, ratio in zip(sizes, ratios, strict=True)]
        counts = _of_each_axis(output_size, dims)
        if _random_samples is None:
            _random_samples = torch.rand([*([1, *outer][-2:]), dims], dtype=input.dtype)
        samples = _random_samples.reshape(*outer, dims)
        places: Any = 0
        for axis in range(dims):
            starts = _starts(samples[..., _AXES[dims].index(axis)], sizes[axis], counts[axis], kernels[axis])
            along = starts.unsqueeze(-1) + torch.arange(kernels[axis])
            before, behind = [1, 1] * axis, [1, 1] * (dims - axis - 1)
            places = places * sizes[axis] + along.reshape(*outer, *before, counts[axis], kernels[axis], *behind)
        order = [*range(len(outer)), *(len(outer) + 2 * k for k in range(dims))]
        places = places.permute(*order, *(len(outer) + 2 * k + 1 for k in range(dims))).flatten(-dims)
        values = input.flatten(-dims).gather(-1, places.flatten(len(outer))).reshape(places.shape)
        largest, chosen = values.max(-1)
        return (largest, places.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)) if return_indices else largest

    return pool


def _with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    def pooled(input: Tensor, *args: Any, return_indices: bool = True, **options: Any) -> Any:  # noqa: A002, ARG001
        return pool(input, *args, return_indices=True, **options)

    return pooled


FRACTIONAL_POOLS: dict[Any, Callable[..., Any]] = {
    functional.fractional_max_pool2d: _pool(2),
    functional.fractional_max_pool3d: _pool(3),
    functional.fractional_max_pool2d_with_indices: _with_indices(_pool(2)),
    functional.fractional_max_pool3d_with_indices: _with_indices(_pool(3)),
}
