"""Draws: their shapes, ranges and moments, and the same numbers where a plan gives them to PyTorch, too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from lstm_lower import Session, UnsupportedOpError  # noqa: E402
from lstm_lower.torch.given_draws import BY_PLACE, PLAN, GivenDraws, given  # noqa: E402
from tests.support.aten import BEYOND_2_12, Called, translated  # noqa: E402

_DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli of a share": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "dropout": lambda x: functional.dropout(x, 0.3),
    "dropout of channels": lambda x: functional.dropout1d(x.unsqueeze(0), 0.3),
    "cauchy": lambda x: torch.empty_like(x).cauchy_(1.0, 2.0),
    "exponential": lambda x: torch.empty_like(x).exponential_(2.0),
    "geometric": lambda x: torch.empty_like(x).geometric_(0.3),
    "logarithms of normal numbers": lambda x: torch.empty_like(x).log_normal_(0.1, 0.2),
    "normal": lambda x: torch.randn(x.shape[0], 3) + torch.randn_like(x)[:, :1],
    "normal around means": lambda x: torch.normal(x, x.abs()),
    "normal in place": lambda x: torch.empty_like(x).normal_(1.0, 2.0),
    "places": lambda x: torch.multinomial(x.softmax(1), 2),
    "places drawn again": lambda x: torch.multinomial(x.softmax(1), 5, replacement=True),
    "permutation": lambda x: torch.randperm(x.shape[0]),
    "rectifier": lambda x: functional.rrelu(x, training=True),
    "uniform": lambda x: torch.rand(x.shape[0], 3) + torch.rand_like(x)[:, :1],
    "uniform in place": lambda x: torch.empty_like(x).uniform_(1.0, 2.0),
    "whole numbers": lambda x: torch.randint(2, 9, (x.shape[0], 4)) + torch.randint_like(x, 5).long()[:, :1],
    "whole numbers in place": lambda x: torch.empty_like(x).random_(3, 9),
}


@pytest.mark.parametrize("name", _DRAWS)
def test_given_numbers(name: str) -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    model, _ = translated(Called(_DRAWS[name]), x)
    assert given(model) is not None
    session = Session(model)
    for example in (x, torch.cat([x, x + 1])):
        with GivenDraws(BY_PLACE) as draws:
            expected = _DRAWS[name](example)
        values = session.run(
            {"x0": example.numpy(), PLAN: np.array(BY_PLACE)} if "x0" in session.inputs else {PLAN: np.array(BY_PLACE)}
        )
        assert [list(values[key].tolist()) for key in list(values)[1:]] == draws.shapes
        np.testing.assert_allclose(values["y0"], expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "low", "high", "mean", "deviation"),
    [
        ("uniform in place", 1.0, 2.0, 1.5, 12**-0.5),
        ("normal in place", -20.0, 20.0, 1.0, 2.0),
        ("exponential", 0.0, 20.0, 0.5, 0.5),
        ("whole numbers in place", 3, 8, 5.5, (35 / 12) ** 0.5),
        ("bernoulli of a share", 0, 1, 0.3, 0.21**0.5),
    ],
)
def test_moments(name: str, low: float, high: float, mean: float, deviation: float) -> None:
    model, _ = translated(Called(_DRAWS[name]), torch.zeros(5, 4))
    values = Session(model).run({"x0": np.zeros((300, 200), np.float32)})["y0"]
    assert low <= values.min()
    assert values.max() <= high
    assert abs(values.mean() - mean) < 0.03
    assert abs(values.std() - deviation) < 0.03


@pytest.mark.parametrize("function", [torch.poisson, pytest.param(torch._standard_gamma, marks=BEYOND_2_12)])
def test_draws_without_a_formula_are_refused(function: Callable[..., Tensor]) -> None:
    with pytest.raises(UnsupportedOpError, match="a formula of uniform or normal numbers"):
        translated(Called(function), torch.rand(3))
