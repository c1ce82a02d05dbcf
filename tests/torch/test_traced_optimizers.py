"""Optimizers without a formula of ours, as their own step is traced, next to the same loop in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError

torch: Any = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim.lr_scheduler import StepLR  # noqa: E402


class _Lion(torch.optim.Optimizer):  # type: ignore[misc]
    """As `lion-pytorch` has it: through `data`, with a state that the first step makes."""

    def __init__(self, params: Any, lr: float, betas: Any = (0.9, 0.99), weight_decay: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if not self.state[p]:
                    self.state[p]["exp_avg"] = torch.zeros_like(p)
                mean, (first, second) = self.state[p]["exp_avg"], group["betas"]
                p.data.mul_(1.0 - group["lr"] * group["weight_decay"])
                p.add_(mean.clone().mul_(first).add(p.grad, alpha=1.0 - first).sign_(), alpha=-group["lr"])
                mean.mul_(second).add_(p.grad, alpha=1.0 - second)


class _ScheduleFree(torch.optim.Optimizer):  # type: ignore[misc]
    """As `schedulefree` has it: numbers in groups, lists of tensors, gradients that are overwritten."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "k": 0, "weight_sum": 0.0, "lr_max": -1.0, "warmup": 0})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            k = group["k"]
            lr = group["lr"] * ((k + 1) / group["warmup"] if k < group["warmup"] else 1.0)
            group["lr_max"] = max(lr, group["lr_max"])
            weight = (k + 1) ** 0.5 * group["lr_max"] ** 2.0
            group["weight_sum"] = group["weight_sum"] + weight
            share = weight / group["weight_sum"]
            for p in group["params"]:
                if "z" not in self.state[p]:
                    self.state[p]["z"] = torch.clone(p)
                    self.state[p]["square"] = torch.zeros_like(p)
            y, z = group["params"], [self.state[p]["z"] for p in group["params"]]
            square, grads = [self.state[p]["square"] for p in y], [p.grad for p in y]
            torch._foreach_mul_(square, 0.9)
            torch._foreach_addcmul_(square, grads, grads, value=0.1)
            root = torch._foreach_div(square, 1 - 0.9 ** (k + 1))
            torch._foreach_sqrt_(root)
            torch._foreach_add_(root, 1e-8)
            torch._foreach_div_(grads, root)
            torch._foreach_lerp_(y, z, weight=share)
            torch._foreach_add_(y, grads, alpha=lr * (0.9 * (1 - share) - 1))
            torch._foreach_sub_(z, grads, alpha=lr)
            group["k"] = k + 1


class _Warming(torch.optim.Optimizer):  # type: ignore[misc]
    """Numbers in the state of parameters, roots by `math`."""

    def __init__(self, params: Any, lr: float, *, waits: int = 0) -> None:
        super().__init__(params, {"lr": lr, "waits": waits})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state.setdefault("step", 0)
                state["step"] += 1
                if group["waits"] and state["step"] <= group["waits"]:
                    continue
                p.addcdiv_(p.grad, p.abs() + 1, value=-group["lr"] / math.sqrt(1 - 0.9 ** state["step"]))


class _First(torch.optim.SGD):  # type: ignore[misc]
    """Momentum that begins with the first gradient, as PyTorch's SGD, of which it is no exact one."""


def _lion(module: Any) -> Any:
    return StepLR(_Lion([{"params": [module[0].weight]}, {"params": [module[2].weight], "lr": 0.01}], 0.02), 2, 0.5)


_CASES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "lion of two groups with a scheduler": (_lion, 1e-6),
    "schedule-free": (lambda module: _ScheduleFree(module.parameters(), 0.05), 2e-6),
    "numbers in states": (lambda module: _Warming(module.parameters(), 0.05), 2e-6),
    "Adafactor": (lambda module: torch.optim.Adafactor(module.parameters(), 0.02, weight_decay=0.1), 2e-6),
    "Muon": (lambda module: torch.optim.Muon([module[0].weight, module[2].weight], 0.02), 2e-6),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("done", [0, 2])
def test_steps_equal_pytorchs(case: str, done: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    if case == "Muon":
        # It rounds what it orthogonalizes, which the step does not.
        monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x)
    module = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
    make, tolerance = _CASES[case]
    chosen = make(module)
    optimizer = getattr(chosen, "optimizer", chosen)

    def learned() -> tuple[Any, Any, Any]:
        x, y = torch.randn(6, 3), torch.randn(6, 2)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        if chosen is not optimizer:
            chosen.step()
        return x, y, loss.item()

    for _ in range(done):
        learned()
    step = ll.from_torch(module, torch.randn(6, 3), "mse", chosen)
    trainer = ll.Trainer(step)
    for _ in range(4):
        x, y, loss = learned()
        assert trainer.step({"input": x.numpy(), "target": y.numpy()}).loss == pytest.approx(loss, rel=1e-5)
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(trainer.weights()[name], value.numpy(), rtol=1e-5, atol=tolerance)


@pytest.mark.slow
def test_gradients_are_clipped_before_it() -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 2, bias=False)
    optimizer = _Warming(module.parameters(), 0.5)
    trainer = ll.Trainer(ll.from_torch(module, torch.zeros(2, 3), "mse", optimizer), clip_norm=0.1, accumulate=2)
    total = 0.0
    for _ in range(2):
        x, y = torch.randn(6, 3), torch.randn(6, 2)
        total = total + nn.functional.mse_loss(module(x), y) / 2
        trainer.step({"input": x.numpy(), "target": y.numpy()})
    total.backward()  # type: ignore[attr-defined]
    nn.utils.clip_grad_norm_(module.parameters(), 0.1)
    optimizer.step()
    np.testing.assert_allclose(trainer.weights()["weight"], module.weight.detach().numpy(), rtol=1e-5, atol=1e-6)


class _Counting(torch.optim.SGD):
    """Changes what a trace does not hold."""

    def __init__(self, module: Any, change: Callable[[Any], None]) -> None:
        super().__init__(module.parameters(), 0.1)
        self.change, self.count = change, 0
        for x in module.parameters():
            self.state[x]["seen"] = torch.zeros(())

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        self.change(self)


_REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a closure": (lambda module: torch.optim.LBFGS(module.parameters()), "LBFGS, which fails with"),
    "a first step that is special": (lambda module: _First(module.parameters(), 0.1, momentum=0.9), "first step in"),
    "a number of its own": (lambda module: _Counting(module, lambda it: vars(it).update(count=1)), "keeps count on it"),
    "a rate": (
        lambda module: _Counting(module, lambda it: it.param_groups[0].update(lr=0.2)),
        "Counting, which sets it",
    ),
    "a state that goes": (lambda module: _Counting(module, lambda it: it.state.clear()), "parts stay, got _Counting"),
    "a branch": (lambda module: _Warming(module.parameters(), 0.1, waits=3), "_Warming: .*data-dependent"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", _REFUSED)
def test_others_are_refused_by_name(case: str) -> None:
    module = nn.Linear(3, 2)
    make, message = _REFUSED[case]
    with pytest.raises(UnsupportedOpError, match=message):
        ll.from_torch(module, torch.zeros(2, 3), "mse", make(module))
