"""Derivatives that a module takes of its own values, against autograd at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402


class Deriving(nn.Module):
    """A recurrent layer and a head, whose derivatives a function takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.head = nn.GRU(2, 3, batch_first=True), nn.Sequential(nn.Linear(2, 3), nn.Tanh())
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def second(module: Any, x: Any) -> Any:
    x = x.clone().requires_grad_()
    u = module.head(x).sum(-1)
    (slope,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    (curved,) = torch.autograd.grad(slope[..., 0].sum(), x, create_graph=True)
    return curved + u[..., None] * slope


def penalty(module: Any, x: Any) -> Any:
    x = x.detach().requires_grad_()
    y = module.layer(x)[0]
    options = {"create_graph": True, "retain_graph": True, "only_inputs": True}
    (slope,) = torch.autograd.grad(outputs=y, inputs=x, grad_outputs=torch.ones_like(y), **options)
    (kept,) = torch.autograd.grad(module.head(x).sum(), x)  # no gradient goes through this one
    return (slope.norm(dim=-1) - 1) ** 2 + (kept * x).sum(-1) * module.head(x).sum(-1)


def through_losses(module: Any, x: Any) -> Any:
    x = x.clone().requires_grad_()
    scores, classes = module.head(x).flatten(0, 1), x.detach()[..., 0].flatten().gt(0).long()
    (slope,) = torch.autograd.grad(nn.functional.cross_entropy(scores, classes), x, create_graph=True)
    return module.head(x + slope.sign() + slope)


def adapted(module: Any, x: Any) -> Any:
    weights = dict(module.head.named_parameters())

    def loss(weights: Any, scale: float) -> Any:
        return (torch.func.functional_call(module.head, weights, (x,)) * scale).square().mean()

    slopes, value = torch.func.grad_and_value(loss)(weights, 2.0)
    moved = {name: weight - 0.1 * slopes[name] for name, weight in weights.items()}
    return torch.func.functional_call(module.head, moved, (x,)) + value


def products(module: Any, x: Any) -> Any:
    _, along = torch.func.jvp(module.head, (x,), (x * 2,))
    hessian = torch.func.hessian(lambda row: module.head(row).sum())(x[0, 0])
    return along.sum() + (hessian * x[..., None]).sum() + torch.func.jacrev(module.head)(x[0, 0]).square().sum()


@pytest.mark.slow
@pytest.mark.parametrize("function", [second, penalty, through_losses, adapted, products])
def test_derivatives_within_forward(function: Callable[..., Any]) -> None:
    module = Deriving(function)

    def loss(result: Any) -> Any:
        return (result * torch.sin(result + 1)).mean()

    examples = [torch.randn(rows, steps, 2) for rows, steps in ((2, 3), (4, 5))]
    step = ll.from_torch(module, examples[0], loss, example_targets=(), what="gradients")
    session = ll.Session(step)
    for x in examples:
        got = session.run({"x": x.numpy()})
        module.zero_grad()
        expected = loss(module(x))
        expected.backward()
        np.testing.assert_allclose(got["loss"], expected.detach(), rtol=1e-5, atol=1e-5)
        for name, weight in module.named_parameters():
            if weight.grad is not None:
                np.testing.assert_allclose(got[f"grad/{name}"], weight.grad, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda m, x: torch.vmap(torch.func.grad(lambda y: m.head(y).sum()))(x[0]), "to be outside of vmap"),
        (lambda m, x: m.head(x.requires_grad_()).sum().backward() or x.grad, "got a call of backward"),
        (
            lambda m, x: torch.cond(x.sum() > 0, lambda: torch.func.grad(lambda y: m.head(y).sum())(x), lambda: x * 2),
            "must be outside of control flow",
        ),
        (lambda m, x: torch.func.jacrev(m.head)(x.expand(50, 3, 2)), "a Jacobian of at most 256 rows, got 450"),
    ],
)
def test_derivatives_that_are_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(UnsupportedOpError, match=message):
        ll.from_torch(Deriving(function), torch.ones(1, 3, 2), "mse", what="forward")
