"""Modules in bfloat16, computed in float32."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")
nn = torch.nn


class _Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.norm, self.head = nn.LSTM(3, 4, batch_first=True), nn.LayerNorm(4), nn.Linear(4, 2)
        self.register_buffer("unread", torch.ones(2))

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.lstm(x)[0]))


class _Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.first(x)
        return self.second(y.float().to(torch.bfloat16).float())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_training_is_float32s(dtype: Any) -> None:
    torch.manual_seed(0)
    module = _Tagger().to(dtype) if dtype == torch.bfloat16 else _Mixed()
    theirs = copy.deepcopy(module).float()
    optimizers = [torch.optim.Adam(it.parameters(), 0.01) for it in (module, theirs)]
    trainer = ll.Trainer(ll.from_torch(module, torch.randn(2, 5, 3, dtype=dtype), "mse", optimizers[0]))
    for length in (5, 7, 5):
        x, y = torch.randn(3, length, 3).bfloat16().float(), torch.randn(3, length, 2)
        loss = nn.functional.mse_loss(theirs(x), y)
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        got = trainer.step({trainer.inputs[0]: x.numpy(), "target": y.numpy()}).loss
        # What autocast rounds between operations, PyTorch does more often.
        assert got == pytest.approx(loss.item(), rel=1e-5 if dtype == torch.bfloat16 else 2e-3)
    weights = {name: torch.from_numpy(value) for name, value in trainer.weights().items()}
    assert module.load_state_dict(weights)
    for name, value in module.state_dict().items():
        assert value.dtype == dtype
        np.testing.assert_allclose(value.float(), theirs.state_dict()[name], rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_casts_round() -> None:
    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.share = nn.Parameter(torch.tensor(1.0))

        def forward(self, x: Any) -> Any:
            return (x * self.share).to(torch.bfloat16) * 3

    x = torch.linspace(0, 1, 101)
    step = ll.from_torch(Rounded(), x, lambda y: y.float().sum(), example_targets=(), what="gradients")
    got = ll.Session(step).run({"x": x.numpy()})["output"]
    np.testing.assert_array_equal(got, x.bfloat16().float() * 3)
