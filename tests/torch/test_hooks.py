"""Hooks on tensors that nothing reads but those who get them: what a module, or a function within it, returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch._higher_order_ops import scan
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import lstm_lower as ll


def halved(y: Any) -> Any:
    y.register_hook(lambda dy: dy * 0.5) if y.requires_grad else None
    return y


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * 0.5


def looped(function: Callable[[Any, Any], Any], carried: Any, x: Any) -> Any:
    """What `scan` does, in Python."""
    parts = []
    for each in x:
        carried, made = function(carried, each)
        parts.append(made)
    return carried, torch.stack(parts)


def total(x: Any, scan: Callable[..., Any], function: Callable[[Any], Any]) -> Any:
    last, parts = scan(lambda a, part: (function(a + part), a * part), x[0] * 0, x)
    return parts + last


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "alone": lambda x, _: halved(x * 2),
    "twice": lambda x, _: (y := halved(x * 2), y),
    "by name": lambda x, _: {"y": halved(x * 2)},
    "checkpoint": lambda x, _: checkpoint(lambda x: halved(x.sin()), x, use_reentrant=False),
    "scan": lambda x, scan: total(x, scan, halved),
    "scan of a function": lambda x, scan: total(x, scan, Straight.apply),
}


class Returning(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind, self.scan = nn.Linear(4, 3), kind, scan

    def forward(self, x: Any) -> Any:
        return CASES[self.kind](self.layer(x), self.scan)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_gradients_of_what_is_returned_go_through_hooks(kind: str) -> None:
    torch.manual_seed(0)
    module, x, target = Returning(kind), torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    step = ll.from_torch(module, x, nn.CrossEntropyLoss(), example_targets=target, what="gradients")
    module.scan = looped
    result = module(x)
    first = result if isinstance(result, torch.Tensor) else next(iter(result.values() if "by" in kind else result))
    functional.cross_entropy(first, target).backward()
    got = ll.Session(step).run({"x": x.numpy(), "target": target.numpy()})
    for name, weight in module.named_parameters():
        np.testing.assert_allclose(got[f"grad/{name}"], weight.grad, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_hook_that_returns_nothing_changes_nothing() -> None:
    torch.manual_seed(0)
    module, seen = torch.nn.Linear(3, 2), []
    module.weight.register_hook(lambda dw: seen.append(dw.shape))
    module.bias.register_hook(lambda db: db * 2)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    trainer = ll.Trainer(ll.from_torch(module, x, "mse", optimizer, example_targets=y))
    trainer.step({"input": x.numpy(), "target": y.numpy()})
    torch.nn.functional.mse_loss(module(x), y).backward()
    optimizer.step()
    for name, value in trainer.weights().items():
        np.testing.assert_allclose(value, module.state_dict()[name].numpy(), rtol=1e-5, atol=1e-6)
