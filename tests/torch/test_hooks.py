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
    "reentrant checkpoint": lambda x, _: checkpoint(lambda x: halved(x.sin()), x, use_reentrant=True),
    "scan of a scan": lambda x, scan: total(total(x, scan, torch.tanh).sin(), scan, halved),
    "scan of a function": lambda x, scan: total(x, scan, Straight.apply),
}


class Returning(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind, self.scan = nn.Linear(4, 3), kind, scan

    def forward(self, x: Any) -> Any:
        return CASES[self.kind](self.layer(x), self.scan)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["gradients", "input_gradient"])
@pytest.mark.parametrize("kind", CASES)
def test_gradients_of_what_is_returned_go_through_hooks(kind: str, what: Any) -> None:
    torch.manual_seed(0)
    module, x, target = Returning(kind), torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    # What has a gradient has it from weights, or from inputs alone.
    module.requires_grad_(what == "gradients")
    step = ll.from_torch(module, x, nn.CrossEntropyLoss(), example_targets=target, what=what)
    module.scan = looped
    result = module(x.requires_grad_(what == "input_gradient"))
    first = result if isinstance(result, torch.Tensor) else next(iter(result.values() if "by" in kind else result))
    functional.cross_entropy(first, target).backward()
    got = ll.Session(step).run({"x": x.detach().numpy(), "target": target.numpy()})
    for name, value in module.named_parameters() if what == "gradients" else [("x", x)]:
        np.testing.assert_allclose(got[f"grad/{name}"], value.grad, rtol=1e-5, atol=1e-6, err_msg=name)


class Reentrant(nn.Module):
    """A reentrant checkpoint records gradients where its operand has one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + checkpoint(self.other, x, use_reentrant=True)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["gradients", "input_gradient"])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_a_reentrant_checkpoint_of_an_input(what: Any) -> None:
    torch.manual_seed(0)
    module, x, target = Reentrant(), torch.randn(5, 4), torch.randn(5, 3)
    step = ll.from_torch(module, x, "mse", example_targets=target, what=what)
    functional.mse_loss(module(x.requires_grad_(what == "input_gradient")), target).backward()
    got = ll.Session(step).run({"x": x.detach().numpy(), "target": target.numpy()})
    wanted = {"x": x} if what == "input_gradient" else dict(module.named_parameters())
    assert {f"grad/{name}" for name, value in wanted.items() if value.grad is not None} == {*got} - {"loss", "output"}
    for name, value in wanted.items():
        if value.grad is not None:
            np.testing.assert_allclose(got[f"grad/{name}"], value.grad, rtol=1e-5, atol=1e-6, err_msg=name)


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
