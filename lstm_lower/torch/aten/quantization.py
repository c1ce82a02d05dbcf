"""Rounding to the numbers that a quantized model has, with PyTorch's gradient: that of what was within its range."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
