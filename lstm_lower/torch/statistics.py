"""Moments of samples: PyTorch looks at values, or its exporter divides by a deviation of 0."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lstm_lower.replacement import replaced


def _root(variance: Tensor) -> Tensor:
    """A deviation, without a slope where it is 0."""
    return torch.where(variance == 0, 0.0, torch.sqrt(torch.where(variance == 0, 1.0, variance)))


def _std(input: Tensor, *args: Any, **options: Any) -> Tensor:  # noqa: A002
    return _root(torch.var(input, *args, **options))


def _std_mean(input: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:  # noqa: A002
    variance, mean = torch.var_mean(input, *args, **options)
    return _root(variance), mean


def _cov(
    input: Tensor,  # noqa: A002
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Any:
    """Of variables in rows: [n] gives a number, [v, n] a matrix."""
    rows = input.unsqueeze(0) if input.dim() == 1 else input
    divisor: Any
    given = [weights for weights in (fweights, aweights) if weights is not None]
    weights = given[0] * given[1] if len(given) == 2 else given[0] if given else None
    if weights is not None:
        total = weights.sum()
        mean = (rows * weights).sum(1, keepdim=True) / total
        # Weights that are no counts say how much a sample tells (as numpy's do).
        lost = correction if aweights is None else correction * (weights * aweights).sum() / total
        divisor = total - lost if correction else total
    else:
        mean = rows.mean(1, keepdim=True)
        divisor = rows.shape[1] - correction
    centered = rows - mean
    products = (centered if weights is None else centered * weights) @ centered.mT / divisor
    return products.reshape(()) if input.dim() == 1 else products


def _corrcoef(input: Tensor) -> Any:  # noqa: A002
    if input.dim() == 1:
        variance = _cov(input)
        return variance / variance
    products = _cov(input)
    deviations = torch.sqrt(products.diagonal())
    return (products / deviations.unsqueeze(1) / deviations).clamp(-1.0, 1.0)


@contextlib.contextmanager
def cumulative_averages() -> Iterator[None]:
    """Lets batch normalization with `momentum=None` count batches in a tensor; it makes a number of Python of it."""
    kind = nn.modules.batchnorm._BatchNorm
    before = kind.forward

    def forward(self: Any, input: Tensor) -> Tensor:  # noqa: A002
        counted = self.num_batches_tracked
        if self.momentum is not None or counted is None or not self.training:
            return before(self, input)
        with replaced(self, "momentum", 1 / (counted + 1).to(self.running_mean.dtype)):
            return before(self, input)

    with replaced(kind, "forward", forward):
        yield


STATISTICS: dict[Any, Callable[..., Any]] = {
    torch.corrcoef: _corrcoef,
    torch.cov: _cov,
    torch.std: _std,
    torch.std_mean: _std_mean,
    Tensor.corrcoef: _corrcoef,
    Tensor.cov: _cov,
    Tensor.std: _std,
}
