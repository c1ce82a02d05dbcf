"""Activations next to PyTorch's, at their kinks and far out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.support.aten import check  # noqa: E402

_NUMBERS = [-90.0, -6.0, -3.0, -1.0, -0.5, -0.25, -1e-4, 0.0, 1e-3, 0.5, 1.0, 2.0, 3.0, 6.0, 25.0, 90.0]

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "celu": functools.partial(functional.celu, alpha=0.7),
    "elu": functools.partial(functional.elu, alpha=0.7),
    "gelu": functional.gelu,
    "gelu by tanh": functools.partial(functional.gelu, approximate="tanh"),
    "glu": functional.glu,
    "hardshrink": functional.hardshrink,
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "hardtanh": functools.partial(functional.hardtanh, min_val=-1.0, max_val=2.0),
    "leaky relu": functools.partial(functional.leaky_relu, negative_slope=0.2),
    "log softmax": functools.partial(functional.log_softmax, dim=0),
    "logsigmoid": functional.logsigmoid,
    "mish": functional.mish,
    "relu": torch.relu,
    "relu6": functional.relu6,
    "rrelu": functional.rrelu,
    "selu": functional.selu,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "softmax": functools.partial(functional.softmax, dim=0),
    "softmin": functools.partial(functional.softmin, dim=-1),
    "softplus": functional.softplus,
    "softplus of another scale": functools.partial(functional.softplus, beta=3.0, threshold=5.0),
    "softshrink": functional.softshrink,
    "softsign": functional.softsign,
    "tanhshrink": functional.tanhshrink,
    "threshold": functools.partial(functional.threshold, threshold=0.5, value=-2.0),
}


@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_activations(name: str) -> None:
    numbers = torch.tensor(_NUMBERS, dtype=torch.float64)
    check(_ACTIVATIONS[name], [numbers], [numbers[4:10]])


@pytest.mark.parametrize("weights", [1, 3])
def test_prelu(weights: int) -> None:
    numbers = torch.tensor(_NUMBERS[:12]).reshape(2, 3, 2)
    check(nn.PReLU(weights), [numbers], [numbers[:1, :, :1]])


def test_softmax_of_nothing_allowed() -> None:
    def weights(x: Tensor) -> Tensor:
        return torch.softmax(torch.where(x > 0, x, -math.inf), -1, dtype=torch.float64)

    check(weights, [torch.tensor([[1.0, -1.0, 2.0]])], [torch.tensor([[3.0, 1.0]])])
