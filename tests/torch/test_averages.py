"""Running averages of weights, next to PyTorch's AveragedModel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError

torch: Any = pytest.importorskip("torch")

from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_averages_equal_pytorchs(accumulate: int) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    step = ll.from_torch(module, torch.zeros(2, 3), "mse", optimizer)
    trainer = ll.Trainer(step, ema=0.9, accumulate=accumulate)
    with pytest.raises(InvalidInputError, match="an update, got none"):
        trainer.averages()
    averaged = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for _ in range(4):
        for _ in range(accumulate):
            x, y = torch.randn(6, 3), torch.randn(6, 1)
            (torch.nn.functional.mse_loss(module(x), y) / accumulate).backward()
            trainer.step({"input": x.numpy(), "target": y.numpy()})
        optimizer.step()
        optimizer.zero_grad()
        averaged.update_parameters(module)
    trainer.load_state_dict(trainer.averages(), strict=False)
    for name, value in averaged.module.state_dict().items():
        np.testing.assert_allclose(trainer.weights()[name], value.numpy(), rtol=1e-5, atol=1e-6)
    assert trainer.evaluate((x, y))["loss"] == pytest.approx(
        torch.nn.functional.mse_loss(averaged(x), y).item(), rel=1e-4
    )


def test_a_share_that_is_none_is_refused() -> None:
    module = torch.nn.Linear(3, 1)
    step = ll.from_torch(module, torch.zeros(2, 3), "mse", torch.optim.SGD(module.parameters(), 0.1))
    with pytest.raises(InvalidInputError, match="ema requires a share"):
        ll.Trainer(step, ema=1.0)
    with pytest.raises(InvalidInputError, match="averages require"):
        ll.Trainer(step).averages()
