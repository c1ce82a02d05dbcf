"""PyTorch's optimizers: a hundred steps at changing sizes (`python -m tests.torch_steps` runs all), and used ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

import lstm_lower as ll
from tests.support.torch_steps import losses


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "optimizer"), [("LSTM", "NAdam"), ("GRU", "RAdam"), ("RNN", "momentum")])
def test_losses_stay_pytorchs(kind: str, optimizer: str) -> None:
    ours, theirs, _ = losses(kind, optimizer, 100)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    assert np.mean(ours[-20:]) < np.mean(ours[:20]) - 0.05


class Scaled(nn.Linear):
    """Has a parameter of rank 0."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.scale


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"momentum": 0.9}),
        ("SGD", {"momentum": 0.9, "dampening": 0.5}),
        ("SGD", {}),
        ("ASGD", {"lambd": 0.1, "t0": 1}),
        ("Rprop", {}),
    ],
    ids=str,
)
def test_an_optimizer_that_has_been_used_goes_on(name: str, options: dict[str, float]) -> None:
    module = Scaled()
    optimizer = getattr(torch.optim, name)(module.parameters(), 0.1, **options)
    x, target = torch.rand(4, 3), torch.rand(4, 2)

    def update() -> float:
        loss = functional.mse_loss(module(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    update()
    trainer = ll.Trainer(ll.from_torch(module, x, "mse", optimizer))
    for _ in range(3):
        assert trainer.step({"x": x.numpy(), "target": target.numpy()}).loss == pytest.approx(update(), rel=1e-5)
