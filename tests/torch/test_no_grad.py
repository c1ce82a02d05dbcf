"""What PyTorch modules compute under `torch.no_grad` takes part in the results, and has no gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


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


def _through_data(m: Module, x: Any) -> Any:
    """What is written past autograd, into views too, leaves the gradient as it was."""
    y, z, made = x * m.w, x + m.w, torch.zeros(2, *x.shape)
    y.data.masked_fill_(x > 0, -2.0)
    rows = z[1:]
    rows.data[:, 0].fill_(3.0)
    torch.clamp(z.detach(), -1, 1, out=z.data)
    made[0] = y
    made.data[:, 0] += 0.5
    y.data = y.data * 0.5
    return y * z + made.sum(0) * rows.sum(0)


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
FORMULAS += [_through_data]


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


class Halving(nn.Linear):
    """Halves its weights, once."""

    halved = False

    def forward(self, x: Any) -> Any:
        if not self.halved:
            with torch.no_grad():
                self.weight.div_(2)
        self.halved = True
        return super().forward(x)


@pytest.mark.slow
def test_parameters_that_forward_changes_are_refused() -> None:
    module = Halving(3, 4)
    before = module.weight.detach().clone()
    with pytest.raises(UnsupportedOpError, match="leaves its parameters as they are, got weight changed in place"):
        ll.from_torch(module, torch.ones(2, 3), "mse", "sgd")
    assert torch.equal(module.weight, before)
    assert not module.halved
    got = ll.Session(ll.from_torch(module, torch.ones(2, 3), "mse", what="input_gradient")).run(
        {"x": np.ones((5, 3), np.float32), "target": np.zeros((5, 4), np.float32)}
    )
    assert torch.equal(module.weight, before)
    np.testing.assert_allclose(got["output"], module(torch.ones(5, 3)).detach(), rtol=1e-5)


class Bounded(nn.Linear):
    """Keeps its weights within bounds that they are not near."""

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.weight.clamp_(-99, 99)
        return super().forward(x)


class Averaging(nn.Module):
    """Predicts what averages of its weights, which begin as copies of them, tell of another view."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.head = nn.Linear(3, 4), nn.Linear(4, 4)
        self.slow = copy.deepcopy(self.online).requires_grad_(requires_grad=False)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            for fast, slow in zip(self.online.parameters(), self.slow.parameters(), strict=True):
                slow.data = slow.data * 0.75 + fast.data * 0.25
            self.scale.mul_(0.5)
        return self.head(self.online(x)) - self.slow(x.flip(-1)) * self.scale


@pytest.mark.slow
def test_averages_of_weights_are_state() -> None:
    module, theirs = Averaging(), Averaging()
    theirs.load_state_dict(module.state_dict())
    mine, optimizer = (torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.5) for m in (module, theirs))
    trainer = ll.Trainer(ll.from_torch(module, torch.ones(2, 3), "mse", mine))
    for rows in (2, 3, 5):
        x, target = torch.rand(rows, 3), torch.rand(rows, 4)
        loss = functional.mse_loss(theirs(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step({"x": x.numpy(), "target": target.numpy()}).loss == pytest.approx(loss.item(), rel=1e-5)
    trainer.to_torch(module)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(module.state_dict()[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    with pytest.raises(UnsupportedOpError, match="leaves its parameters as they are, got weight changed in place"):
        ll.from_torch(Bounded(3, 4), torch.ones(2, 3), "mse", "sgd")
