"""Means and variances of nothing are NaN, as PyTorch has them, not zero; of something they are what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import lstm_lower as ll  # noqa: E402

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda y: y[y > 0].mean() + y,
    "rows": lambda y: y[y[:, 0] > 0].mean(0, keepdim=True) * y,
    "variance": lambda y: y[y[:, 0] > 0].var(0, correction=0) + y,
    "half": lambda y: y[y > 0].half().mean().float() + y,
    "batch": lambda y: y.mean() * torch.ones(2),
}


class Chosen(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.scale = kind, nn.Parameter(torch.tensor([2.0, -1.0, 3.0]))

    def forward(self, x: Any) -> Any:
        return FUNCTIONS[self.kind](x * self.scale)


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_of_nothing(kind: str) -> None:
    module = Chosen(kind)
    step = ll.from_torch(module, torch.rand(3, 3), lambda y: y.square().sum(), example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    some, nothing = torch.tensor([[1.0, 2.0, -1.0], [-3.0, 1.0, 0.5]]), torch.tensor([[-1.0, 2.0, -3.0]])
    for x in (some, some * 3e4 if kind == "half" else some, nothing[:0] if kind == "batch" else nothing):
        module.zero_grad()
        result = module(x)
        result.square().sum().backward()
        got = session.run({"x": x.numpy()})
        assert np.isnan(got["output"]).any() == (len(x) < 2)
        np.testing.assert_allclose(got["output"], result.detach(), rtol=1e-3 if kind == "half" else 1e-5, err_msg=kind)
        np.testing.assert_allclose(got["grad/scale"], module.scale.grad, rtol=1e-3 if kind == "half" else 1e-5)
