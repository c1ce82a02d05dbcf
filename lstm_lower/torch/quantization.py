"""Rounding to the numbers that a quantized model has, with PyTorch's gradient: that of what was within its range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lstm_lower.torch.aten.quantization import observed
from lstm_lower.torch.functions import stopped


def _rounded(x: Tensor, scale: Any, zero_point: Any, least: int, most: int) -> Tensor:
    """Straight through (Jacob et al., 2018)."""
    scale, zero_point = (stopped(value) if isinstance(value, Tensor) else value for value in (scale, zero_point))
    zero = zero_point.to(x.dtype) if isinstance(zero_point, Tensor) else float(zero_point)
    level = torch.round(stopped(x) * (1 / scale)) + zero
    near = (level.clamp(least, most) - zero) * scale
    within = (level >= least) & (level <= most)
    return torch.where(within, x + (near - stopped(x)), near)


def _by_channel(
    input: Tensor,  # noqa: A002
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Tensor:
    shape = [1] * input.dim()
    shape[axis] = -1
    return _rounded(input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


def _by_tensor(
    input: Tensor,  # noqa: A002
    scale: Any,
    zero_point: Any,
    quant_min: int,
    quant_max: int,
) -> Tensor:
    return _rounded(input, scale, zero_point, quant_min, quant_max)


def _observed(
    input: Tensor,  # noqa: A002
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
        stopped(input),
        input,
        (observer_on, fake_quant_on),
        (running_min, running_max),
        (scale, zero_point),
        averaging_const,
        (quant_min, quant_max),
        ch_axis if per_row_fake_quant else None,
        symmetric=symmetric_quant,
    )


QUANTIZATION: dict[Any, Callable[..., Any]] = {
    torch.fake_quantize_per_channel_affine: _by_channel,
    torch.fake_quantize_per_tensor_affine: _by_tensor,
    torch.fused_moving_avg_obs_fake_quant: _observed,
}
