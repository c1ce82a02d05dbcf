"""What PyTorch modules compute under `torch.no_grad` takes part in the results, and has no gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402


def _elements_set(m: Module, x: Any) -> Any:
    with torch.no_grad():
        made = torch.zeros(x.shape[0], 5)
        made[0] = m.w
        made[x > 0] = m.w[1]
        doubled = made * 2
    return made * x + doubled + m.w


def _changed_through_views(m: Module, x: Any) -> Any:
    with torch.no_grad():
        made = torch.zeros(x.shape[0], 5)
        made.view(-1).add_((x * m.w).view(-1))
        made[:, 1].add_(m.w.sum())
        made.t()[2].mul_(3.0)
    return made * m.w


def _changed_in_place(m: Module, x: Any) -> Any:
    """The tensor keeps the gradient that it had, as one that is rounded straight through."""
    y = x * m.w
    with torch.no_grad():
        y.round_()
        y[:, 0] = m.w[0]
        torch.nn.functional.relu(y, inplace=True)
        y += m.w
    return y * m.w


def _complex(m: Module, x: Any) -> Any:
    z = torch.fft.rfft(x * m.w)
    with torch.no_grad():
        turned = z * 1j
    return torch.fft.irfft(z + turned, n=5) * m.w


def _with_gradients_again(m: Module, x: Any) -> Any:
    with torch.no_grad():
        y = torch.zeros(x.shape[0], 5)
    y.add_(m.w * x)
    with torch.no_grad():
        held = y * 2
        with torch.enable_grad():
            free = x * m.w.sum()
        both = free * 2
    return y + held + free + both


def _buffers(m: Module, x: Any) -> Any:
    y = x * m.w
    with torch.no_grad():
        m.mean.mul_(0.9).add_(0.1 * y.mean(0))
        m.last[0].copy_(y[0])
        m.last[1:] = m.last[:-1].clone()
    return y + m.mean + torch.where(torch.isinf(m.last[1]), torch.zeros(()), m.last[1])


def _steps(m: Module, x: Any) -> Any:
    """Loops that become Scans, whose steps read a state with and without its gradient; not all do so in the other."""
    state, other = torch.zeros(5), torch.ones(5)
    for _ in range(6):
        state = torch.tanh(x * m.w * (1 - state.detach()) + state)
    for step in range(6):
        other = torch.tanh(x * m.w + (other.detach() if step == 3 else other.clone()))
    return state * other


class Module(nn.Module):
    """Weights and buffers for a formula."""

    def __init__(self, formula: Callable[..., Any]) -> None:
        super().__init__()
        self.formula = formula
        self.w = nn.Parameter(torch.linspace(0.5, 1.5, 5))
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("last", torch.full((3, 5), -torch.inf))

    def forward(self, x: Any) -> Any:
        return self.formula(self, x)


FORMULAS = [_elements_set, _changed_through_views, _changed_in_place, _complex, _with_gradients_again, _buffers, _steps]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lstm_lower.torch.importer.FixedStepsWarning")
@pytest.mark.parametrize("formula", FORMULAS)
def test_gradients_are_torchs(formula: Callable[..., Any]) -> None:
    def loss(result: Any) -> Any:
        return (result * torch.sin(result + 0.3)).sum()

    generator = torch.Generator().manual_seed(3)
    example, x = (torch.randn(rows, 5, generator=generator) for rows in (2, 4))
    step = ll.from_torch(Module(formula), example, loss, example_targets=(), what="gradients")
    got = ll.Session(step).run({"x": x.numpy()})
    module = Module(formula)
    expected = loss(module(x))
    expected.backward()
    assert float(got["loss"]) == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(got["grad/w"], module.w.grad, rtol=1e-5, atol=1e-5)
