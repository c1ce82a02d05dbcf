"""Rounding to quantized numbers next to PyTorch's, with gradients of what is within the range."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from tests.support.aten import check  # noqa: E402

_NUMBERS = torch.tensor([[-40.0, -12.8, -0.05, 0.0], [0.149, 0.25, 12.7, 13.0]])


def test_of_a_tensor() -> None:
    def numbers(x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127)

    def by_tensors(x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), 0, 255)

    for function in (numbers, by_tensors):
        check(function, [_NUMBERS], [_NUMBERS[:1, 1:]], dtypes=[torch.float32])


def test_of_channels() -> None:
    def channels(x: Tensor) -> Tensor:
        scales, zeros = torch.tensor([0.1, 0.3]), torch.tensor([0, 5], dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(x, scales, zeros, 0, -128, 127)

    check(channels, [_NUMBERS], [_NUMBERS[:, 1:]], dtypes=[torch.float32])
