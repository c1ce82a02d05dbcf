"""Random numbers of PyTorch: means, deviations and gradients over many draws against PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402

ROWS = 4000


class Drawing(nn.Module):
    """Of each row, a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([0.2, 0.5, 0.7, 0.9]))

    def forward(self, x: Any) -> Any:
        return self.function(x * self.weight)


def _twice(x: Any) -> Any:
    shares = torch.full_like(x, 0.3)
    return x * (torch.bernoulli(shares) - torch.bernoulli(shares))


def _within(low: float, high: float) -> Callable[..., Any]:
    return lambda x: x * torch.empty_like(x).uniform_(low, to=high)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bernoulli": torch.bernoulli,
    "bernoulli twice": _twice,
    "bernoulli in place": lambda x: torch.empty_like(x).bernoulli_(x.detach()) * x,
    "multinomial": lambda x: x.gather(1, torch.multinomial(x.detach() ** 2, 2)),
    "multinomial with replacement": lambda x: x.gather(1, x.multinomial(3, replacement=True)),
    "normal": lambda x: torch.normal(x, 0.5) * x,
    "normal of deviations": lambda x: torch.normal(1.0, x) + x,
    "normal of both": lambda x: torch.normal(x, x) * x,
    "permutation": lambda x: x * torch.randperm(x.shape[0]).unsqueeze(1) / x.shape[0],
    "uniform in place": _within(-1.0, 3.0),
    "integers": lambda x: x * (torch.randint(2**23, 2**23 + 3, x.shape) - 2**23) / 3,
    "integers like": lambda x: x * (torch.randint_like(x, -3, 3) + torch.randint(low=-2, high=2, size=x.shape)) / 3,
    "whole": lambda x: x * torch.empty_like(x).random_(2, 7) / 7,
    "whole to": lambda x: x * torch.empty_like(x).random_(3) / 3,
}


def _moments(results: Any, gradient: Any) -> np.ndarray[Any, Any]:
    """Of each column, its mean and mean square, and products of neighbours; gradients of the mean."""
    columns = np.asarray(results, np.float64)
    beside = (columns * np.roll(columns, 1, axis=1)).mean(0)
    rows = (columns[1:] * columns[:-1]).mean(0)
    return np.concatenate([columns.mean(0), (columns**2).mean(0), beside, rows, np.asarray(gradient, np.float64)])


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_draws_are_distributed_as_those_of_pytorch(name: str) -> None:
    module, x = Drawing(FUNCTIONS[name]), torch.ones(ROWS, 4)
    torch.manual_seed(0)
    onnxruntime.set_seed(0)

    def loss(result: Any) -> Any:
        return result.mean(0).square().sum()

    if name == "bernoulli":
        # Nothing trains what it is drawn by.
        module.function = lambda x: torch.bernoulli(x) + x
    step = ll.from_torch(module, torch.ones(3, 4), loss, example_targets=(), what="gradients")
    found = ll.Session(ll.lower(step)).run({"x": x.numpy(), "weight": module.weight.detach().numpy()})
    expected = module(x)
    loss(expected).backward()
    scale = 1 + np.square(expected.detach().numpy()).max()
    np.testing.assert_allclose(
        _moments(found["output"], found["grad/weight"]),
        _moments(expected.detach(), module.weight.grad),
        atol=0.1 * np.sqrt(scale),
    )


class Paths(nn.Module):
    """A sample is left out as a whole (Huang et al., 2016): two samples are often drawn as before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return x + self.layer(x) * x.new_empty(x.shape[0], 1).bernoulli_(0.7) / 0.7


@pytest.mark.slow
def test_few_draws_are_no_difference_and_fix_no_axis() -> None:
    for number in range(8):
        torch.manual_seed(number)
        step = ll.from_torch(Paths(), torch.randn(1, 3), "mse", what="forward")
        assert step.graph.input[0].type.tensor_type.shape.dim[0].dim_param
