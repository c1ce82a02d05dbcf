"""Steps done here and steps done in PyTorch, with the optimizer's state carried over, next to PyTorch alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError

torch: Any = pytest.importorskip("torch")

from torch import nn  # noqa: E402

_OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda module: torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, dampening=0.5),
    "plain SGD": lambda module: torch.optim.SGD(module.parameters(), 0.1),
    "AdamW": lambda module: torch.optim.AdamW(
        [{"params": [module[0].weight]}, {"params": [module[1].weight, module[1].bias], "lr": 0.01}], 0.1, amsgrad=True
    ),
    "ASGD": lambda module: torch.optim.ASGD(module.parameters(), 0.1, t0=1),
    "NAdam": lambda module: torch.optim.NAdam(module.parameters(), 0.1),
    "Rprop": lambda module: torch.optim.Rprop(module.parameters(), 0.01),
    "Adagrad": lambda module: torch.optim.Adagrad(module.parameters(), 0.1),
    "Adafactor": lambda module: torch.optim.Adafactor(module.parameters(), 0.1),
}


class _Pair:
    """A module with its optimizer, learning in PyTorch."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        self.module = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2))
        self.optimizer = _OPTIMIZERS[name](self.module)

    def learn(self, x: Any, y: Any) -> None:
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.module(x), y).backward()
        self.optimizer.step()


def _batches() -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(6, 3, generator=generator), torch.randn(6, 2, generator=generator)) for _ in range(6)]


def _learn(trainer: Any, x: Any, y: Any) -> None:
    trainer.step({"input": x.numpy(), "target": y.numpy()})


def _assert_equal(values: Any, module: Any) -> None:
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(values[name], value.numpy(), rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_three_here_and_three_there_are_six_there(name: str) -> None:
    alone, other = _Pair(name), _Pair(name)
    batches = _batches()
    for x, y in batches:
        alone.learn(x, y)
    step = ll.from_torch(other.module, torch.zeros(2, 3), "mse", other.optimizer)
    trainer = ll.Trainer(step)
    trainer.to_torch(other.module, other.optimizer)  # before any step there is nothing to carry over
    for x, y in batches[:3]:
        _learn(trainer, x, y)
    trainer.to_torch(other.module, other.optimizer)
    for x, y in batches[3:]:
        other.learn(x, y)
    _assert_equal({key: x.numpy() for key, x in other.module.state_dict().items()}, alone.module)

    # And the other way: three there, three here.
    other = _Pair(name)
    for x, y in batches[:3]:
        other.learn(x, y)
    trainer.from_torch(other.module, other.optimizer)
    for x, y in batches[3:]:
        _learn(trainer, x, y)
    _assert_equal(trainer.weights(), alone.module)


@pytest.mark.slow
def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    pair = _Pair("AdamW")
    step = ll.from_torch(pair.module, torch.zeros(2, 3), "mse", pair.optimizer)
    trainer = ll.Trainer(step)
    _learn(trainer, *_batches()[0])
    other = copy.deepcopy(pair.module)
    before = {name: x.clone() for name, x in other.state_dict().items()}
    with pytest.raises(InvalidInputError, match="of the module"):
        trainer.to_torch(other, pair.optimizer)
    with pytest.raises(InvalidInputError, match="'exp_avg' of"):
        trainer.to_torch(other, torch.optim.SGD(other.parameters(), 0.1))
    with pytest.raises(InvalidInputError, match="'exp_avg' of"):
        trainer.from_torch(other, torch.optim.AdamW(other.parameters()))
    without = ll.Trainer(ll.from_torch(other, torch.zeros(2, 3), "mse"), optimizer="adam")
    with pytest.raises(InvalidInputError, match="got one without"):
        without.to_torch(other, torch.optim.AdamW(other.parameters()))
    assert all(torch.equal(x, before[name]) for name, x in other.state_dict().items())


NAMED: dict[str, Callable[[Any], Any]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}


@pytest.mark.parametrize("name", NAMED)
def test_names_of_optimizers_are_torchs(name: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    trainers = [
        ll.Trainer(ll.from_torch(module, torch.zeros(2, 3), "mse", name)),
        ll.Trainer(ll.from_torch(module, torch.zeros(2, 3), "mse"), optimizer=name),
    ]
    optimizer = NAMED[name](module.parameters())
    for x, y in _batches():
        optimizer.zero_grad()
        nn.functional.mse_loss(module(x), y).backward()
        optimizer.step()
        for trainer in trainers:
            _learn(trainer, x, y)
    for trainer in trainers:
        _assert_equal(trainer.weights(), module)
