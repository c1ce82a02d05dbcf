"""Schedulers that call functions of Python: run ahead, and in the step as tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, LstmLowerError, UnsupportedOpError
from lstm_lower.passes.training.schedules import RateTable

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402

from lstm_lower.torch import schedulers  # noqa: E402

COUNTER = itertools.count()


class Counting:
    """A function that counts its calls in place of looking at its argument."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _: int) -> float:
        self.calls += 1
        return 1 / (1 + self.calls)


class Inverse(lr_scheduler.LRScheduler):
    """A scheduler that nobody knows."""

    def get_lr(self) -> list[float]:
        return [rate / (1 + self.last_epoch) for rate in self.base_lrs]


class Decaying(lr_scheduler.LRScheduler):
    """A scheduler that changes another option."""

    def get_lr(self) -> list[float]:
        for group in self.optimizer.param_groups:
            group["weight_decay"] = 0.01 * self.last_epoch
        return list(self.base_lrs)


def optimizer_of(module: Any) -> Any:
    return torch.optim.SGD([{"params": [module.weight]}, {"params": [module.bias], "lr": 0.03}], 0.1, momentum=0.9)


MAKES: dict[str, Callable[[Any], Any]] = {
    "a lambda for each group": lambda it: lr_scheduler.LambdaLR(it, [lambda n: 0.9**n, lambda n: 1 / (1 + n)]),
    "a product that looks at the optimizer": lambda it: lr_scheduler.MultiplicativeLR(
        it, lambda _: 0.5 if it.param_groups[0]["lr"] > 0.01 else 1.2
    ),
    "an object": lambda it: lr_scheduler.LambdaLR(it, Counting()),
    "one of many": lambda it: lr_scheduler.SequentialLR(
        it,
        [lr_scheduler.ConstantLR(it, 0.1), lr_scheduler.MultiplicativeLR(it, lambda _: 0.9), Inverse(it)],
        [5, 20],
    ),
    "one in a chain": lambda it: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(it, 0.95), lr_scheduler.MultiplicativeLR(it, lambda _: 0.97)]
    ),
    "a height": lambda it: lr_scheduler.CyclicLR(it, 0.01, 0.1, 5, scale_fn=lambda cycle: 1 / cycle),
}


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_tables_hold_what_the_scheduler_sets(name: str) -> None:
    optimizer = optimizer_of(nn.Linear(3, 2))
    scheduler = MAKES[name](optimizer)
    for _ in range(3):
        scheduler.step()
    tables = schedulers.schedules_of(scheduler, [3, 3], 63)
    for place in range(60):
        for table, group in zip(tables, optimizer.param_groups, strict=True):
            assert isinstance(table, RateTable)
            assert table.factors[place] * group["initial_lr"] == pytest.approx(group["lr"], rel=1e-12)
            if table.table:
                assert table.table[place] == group["momentum"]
        scheduler.step()
    assert bool(tables[0].momentums) == (name == "a height")


@pytest.mark.slow
def test_a_step_goes_along_its_table_and_fails_behind_it() -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    optimizer = optimizer_of(module)
    scheduler = MAKES["a height"](optimizer)
    data = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(12)]

    def trained(x: Any, target: Any) -> float:
        optimizer.zero_grad()
        loss = functional.mse_loss(module(x), target)
        loss.backward()
        optimizer.step()
        scheduler.step()
        number: float = loss.item()
        return number

    for pair in data[:2]:
        trained(*pair)
    trainer = ll.Trainer(ll.from_torch(module, data[0][0], "mse", scheduler, schedule_steps=12))
    for x, target in data[2:]:
        got = trainer.step({"input": x.numpy(), "target": target.numpy()}).loss
        assert got == pytest.approx(trained(x, target), rel=1e-5)
    before = trainer.weights()
    with pytest.raises(InvalidInputError, match=r"requires at most 12 updates.*schedule_steps=N"):
        trainer.step({"input": x.numpy(), "target": target.numpy()})
    for name, value in trainer.weights().items():
        np.testing.assert_array_equal(value, before[name])
        np.testing.assert_allclose(value, module.state_dict()[name], rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "steps", "error", "message"),
    [
        (lambda it: lr_scheduler.LambdaLR(it, lambda _: 1.0), None, UnsupportedOpError, "schedule_steps=N puts"),
        (lambda it: lr_scheduler.LambdaLR(it, lambda _: 1.0), 0, InvalidInputError, "updates from 1 to .* got 0"),
        (lambda it: it, 9, InvalidInputError, "requires a scheduler of torch.optim as optimizer, got SGD"),
        (
            lambda it: lr_scheduler.LambdaLR(it, lambda _: next(COUNTER)),
            9,
            UnsupportedOpError,
            "depend on the number of updates alone",
        ),
        (lambda it: lr_scheduler.LambdaLR(it, lambda n: 1 / (4 - n)), 9, InvalidInputError, "at its step 4"),
        (lambda it: lr_scheduler.LambdaLR(it, lambda n: n * float("nan")), 9, InvalidInputError, "are finite, got nan"),
        (Decaying, 9, UnsupportedOpError, "changes weight_decay after 1 updates"),
    ],
)
def test_what_has_no_table(make: Any, steps: Any, error: type[LstmLowerError], message: str) -> None:
    module = nn.Linear(3, 2)
    with pytest.raises(error, match=message):
        ll.from_torch(module, torch.zeros(2, 3), "mse", make(optimizer_of(module)), schedule_steps=steps)
