"""Rounding to the numbers that a quantized model has, with PyTorch's gradient: that of what was within its range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.torch.aten.tracing import traces


def _rounded(x: Tensor, scale: Any, zero_point: Any, least: int, most: int) -> Tensor:
    """Straight through (Jacob et al., 2018)."""
    scale, zero_point = (value.detach() if isinstance(value, Tensor) else value for value in (scale, zero_point))
    zero = zero_point.to(x.dtype) if isinstance(zero_point, Tensor) else float(zero_point)
    held = x.detach()
    level = torch.round(held * (1 / scale)) + zero
    near = (level.clamp(least, most) - zero) * scale
    within = (level >= least) & (level <= most)
    return torch.where(within, x + (near - held), near)


@traces(torch.fake_quantize_per_channel_affine)
def _by_channel(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int) -> Tensor:
    shape = [1] * input.dim()
    shape[axis] = -1
    return _rounded(input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


@traces(torch.fake_quantize_per_tensor_affine)
def _by_tensor(input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    return _rounded(input, scale, zero_point, quant_min, quant_max)


# Scales below this one are not used.
_LEAST_SCALE = 6.1e-5


def observed(
    rounded: Callable[..., Tensor],
    held: Tensor,
    x: Tensor,
    switches: tuple[Tensor, Tensor],
    ranges: tuple[Tensor, Tensor],
    quantities: tuple[Tensor, Tensor],
    constant: float,
    bounds: tuple[int, int],
    axis: int | None,
    *,
    symmetric: bool,
) -> Tensor:
    """A tensor rounded within the moving average of its range, which is changed in place, as are scale and zero point.

    Args:
        rounded: what rounds a tensor by scale and zero point, that have its number of axes, and bounds.
        held: the tensor without a gradient.
        x: the tensor.
        switches: whether to observe, and whether to round.
        ranges: moving averages of the smallest and the largest element.
        quantities: scale and zero point.
        constant: share of the new range in the average.
        bounds: the smallest and the largest quantized number.
        axis: of the channels that have ranges of their own.
        symmetric: whether the zero point is in the middle.

    Source: `fused_moving_avg_obs_fake_quant_cpu` and `ChooseQuantizationParams` of PyTorch.
    """
    if ranges[0].numel() == 0:
        raise UnsupportedOpError(
            "fake quantization requires observers that have seen something, got empty ranges; call the module once "
            "with its inputs, module(x), before"
        )
    observing, rounding = (switch.reshape(()) == 1 for switch in switches)
    axes = [place for place in range(x.dim()) if axis is None or place != axis % x.dim()]
    averages = [
        torch.where(torch.isinf(old), new, old + constant * (new - old))
        for old, new in zip(ranges, (held.amin(axes).reshape(-1), held.amax(axes).reshape(-1)), strict=True)
        for old, new in [(old.reshape(-1), new)]
    ]
    for old, new in zip(ranges, averages, strict=True):
        old.copy_(torch.where(observing, new.reshape(old.shape), old))
    for old, new in zip(quantities, _chosen(averages[0], averages[1], bounds, symmetric=symmetric), strict=True):
        old.copy_(torch.where(observing, new.reshape(old.shape).to(old.dtype), old))
    shape = [1] * x.dim()
    if axis is not None:
        shape[axis] = -1
    near = rounded(x, *(value.reshape(shape) for value in quantities), *bounds)
    return torch.where(rounding, near, x)


def _chosen(low: Tensor, high: Tensor, bounds: tuple[int, int], *, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Scale and zero point for ranges."""
    least, most = bounds
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    both = (low < 0) & (high > 0)
    if symmetric:
        below, above = -((most - least) // 2 + 1), (most - least) // 2
        widest = torch.maximum((low / below).abs(), (high / above).abs())
        low, high = torch.where(both, widest * below, low), torch.where(both, widest * above, high)
    scale = (high - low) / (most - least)
    scale = torch.where((scale == 0) | torch.isinf(1 / scale), 0.1, scale)
    short = scale < _LEAST_SCALE
    wider = _LEAST_SCALE / scale
    low = torch.where(short, torch.where(high == 0, -_LEAST_SCALE * (most - least), low * wider), low)
    high = torch.where(short, torch.where(low == 0, _LEAST_SCALE * (most - least), high * wider), high)
    scale = torch.where(short, _LEAST_SCALE, scale)
    from_low, from_high = least - low / scale, most - high / scale
    nearer = abs(least) + (low / scale).abs() < abs(most) + (high / scale).abs()
    zero = torch.where(nearer, from_low, from_high)
    if symmetric:
        zero = torch.where(both, (least + most) / 2, zero)
    return scale, torch.round(zero).clamp(least, most)


@traces(torch.fused_moving_avg_obs_fake_quant)
def _observed(
    input: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Tensor:
    return observed(
        _rounded,
        input.detach(),
        input,
        (observer_on, fake_quant_on),
        (running_min, running_max),
        (scale, zero_point),
        averaging_const,
        (quant_min, quant_max),
        ch_axis if per_row_fake_quant else None,
        symmetric=symmetric_quant,
    )
