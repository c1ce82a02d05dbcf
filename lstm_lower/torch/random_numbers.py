"""Random numbers that PyTorch's exporter draws otherwise, or has no formula for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.torch.functions import broadcast, stopped


def _normal(mean: Any, std: Any = 1.0, *size: Any, **options: Any) -> Any:
    """Numbers around means; neither these nor the deviations have a gradient in PyTorch.

    The exporter draws one number for all deviations beside a mean that is a number.
    """
    operands = [x for x in (mean, std) if isinstance(x, Tensor)]
    if not operands or size or options.get("out") is not None:
        return NotImplemented
    numbers = torch.randn(broadcast(*(x.shape for x in operands)), dtype=operands[0].dtype)
    mean, std = (stopped(x) if isinstance(x, Tensor) else x for x in (mean, std))
    return numbers * std + mean


def _multinomial(input: Tensor, num_samples: int, replacement: bool = False, **options: Any) -> Any:  # noqa: A002
    """Places of which none is drawn twice (Efraimidis and Spirakis, 2006); the exporter draws some again."""
    if replacement or options.get("out") is not None:
        return NotImplemented
    return (input / -torch.log(torch.rand_like(input))).topk(num_samples, -1).indices


def _permutation(n: Any, *, dtype: torch.dtype = torch.int64, **options: Any) -> Any:
    if options.get("out") is not None:
        return NotImplemented
    return torch.rand(n).argsort().to(dtype)


def _whole(low: Any, high: Any = None, size: Any = None, **options: Any) -> Any:
    """Numbers from a bound on, which is added behind; the exporter adds it in float32 before it rounds down."""
    if not low or not isinstance(high, int) or size is None or options.get("out") is not None:
        return NotImplemented
    return torch.randint(high - low, size, **options) + low


def _whole_like(input: Tensor, low: Any, high: Any = None, **options: Any) -> Any:  # noqa: A002
    return NotImplemented if high is None else torch.randint_like(input, high - low, **options) + low


def _bernoulli_in_place(input: Tensor, p: Any = 0.5, **options: Any) -> Any:  # noqa: A002, ARG001
    if not isinstance(p, Tensor):
        return NotImplemented
    return input.copy_(torch.rand(input.shape, dtype=p.dtype) < stopped(p))


def _whole_in_place(input: Tensor, *bounds: int, **options: Any) -> Any:  # noqa: A002
    # By position or by PyTorch's names, of which one is no name in Python; a single one is the upper one.
    bounds = (0, *bounds) if len(bounds) == 1 and "to" not in options else bounds
    low = bounds[0] if bounds else options.get("from", 0)
    high = bounds[1] if len(bounds) > 1 else options.get("to")
    if high is None:
        if input.dtype != torch.float32:
            raise UnsupportedOpError(
                f"random_ requires bounds, got none for {str(input.dtype).removeprefix('torch.')}; x.random_(0, 2**24) "
                "draws whole numbers"
            )
        high = WHOLE
    return input.copy_(torch.randint(high - low, input.shape) + low)


def _refused(name: str, way: str) -> Callable[..., Any]:
    def called(*_: Any, **__: Any) -> Any:
        raise UnsupportedOpError(
            f"{name} requires a formula of uniform or normal numbers, which are what ONNX draws, got none; {way}"
        )

    return called


_FED = "draw the numbers outside of forward, and hand them to it as an input"
_BESIDE = "LogNormal and Weibull of torch.distributions are much like Gamma"
_OF_SHARES = "Kumaraswamy of torch.distributions is much like Beta, and the softmax of normal numbers like Dirichlet"


# Whole numbers without a bound are below this in float32, and all exact.
WHOLE = 2**24 + 1

RANDOM: dict[Any, Callable[..., Any]] = {
    torch._sample_dirichlet: _refused("Dirichlet or Beta", _OF_SHARES),
    torch._standard_gamma: _refused("Gamma", _BESIDE),
    torch.binomial: _refused("binomial", _FED),
    torch.multinomial: _multinomial,
    torch.normal: _normal,
    torch.poisson: _refused("poisson", _FED),
    torch.randint: _whole,
    torch.randint_like: _whole_like,
    torch.randperm: _permutation,
    Tensor.bernoulli_: _bernoulli_in_place,
    Tensor.multinomial: _multinomial,
    Tensor.random_: _whole_in_place,
}
