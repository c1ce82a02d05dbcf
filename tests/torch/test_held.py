"""What PyTorch modules hold: constants that they branch over, weights reached by other ways, what they remember."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402


class Module(nn.Module):
    """A formula of a layer's result and of what the module holds."""

    def __init__(self, formula: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.formula = formula
        self.register_buffer("mean", torch.full((3,), 0.5))
        self.register_buffer("started", torch.tensor(0, dtype=torch.bool))
        self.register_buffer("kept", None)
        self.remembered: Any = None
        self.seen: list[Any] = []
        self.tables: dict[str, Any] = {}
        self.calls = 0
        self.hold()

    def hold(self) -> None:
        """By other ways than as attributes, and what lies in their memory."""
        weight = self.linear.weight
        self.weights = [weight]
        self.parts = [weight.data, weight.data[1:, 0], weight.detach().t(), self.mean[1:]]

    def forward(self, x: Any) -> Any:
        return self.formula(self, x, self.linear(x))


def _of_times(m: Any, x: Any, y: Any) -> Any:
    """Steps of a solver; `torchdiffeq` looks at its times in this way."""
    times = torch.linspace(0, 1, 4)
    if times[0] > times[1]:
        y = -y
    assert (times[1:] > times[:-1]).all()
    for start, end in itertools.pairwise(times):
        y = y + (end - start) * torch.tanh(y * float(start + 1))
    return y + m.mean


def _of_flags(m: Any, x: Any, y: Any) -> Any:
    return y * 5 if m.started else y + x


def _by_a_list(m: Any, x: Any, y: Any) -> Any:
    return y + torch.tanh(x @ m.weights[0])


def _by_memory(m: Any, x: Any, y: Any) -> Any:
    same, column, turned, mean = m.parts
    return y * column.sum() + x @ same + torch.tanh(x @ turned) * mean.sum()


def _by_views(m: Any, x: Any, y: Any) -> Any:
    """What was made before with a gradient, which PyTorch can take again and again."""
    (view,) = m.views
    return y + (x @ view).sum() + torch.tanh(view.detach()).sum()


def _through_data(m: Any, x: Any, y: Any) -> Any:
    m.mean.data.mul_(0.9).add_(y.detach().mean(0) * 0.1)
    m.mean.detach()[0] += 1
    return y * m.mean


def _data_set(m: Any, x: Any, y: Any) -> Any:
    m.mean.data = m.mean.data * 0.9 + y.data.mean(0)
    return y * m.mean


def _cached(m: Any, x: Any, y: Any) -> Any:
    m.calls += 1
    if m.kept is None:
        m.kept = torch.arange(3.0)
        m.remembered = m.kept * 2
    return y * m.kept + m.remembered


def _watched(m: Any, x: Any, y: Any) -> Any:
    """Adds up what hooks see that the first call registers, as `transformers` collects results of layers."""
    if not m.calls:
        m.linear.register_forward_hook(lambda *seen: m.seen.append(seen[2]))
        m.calls += 1
    m.seen.clear()
    m.linear(x + 1)
    return y * sum(m.seen)


def _by_a_table(m: Any, x: Any, y: Any) -> Any:
    if "weights" not in m.tables:
        m.tables["weights"] = torch.arange(3.0)
    return y * m.tables["weights"]


def _checked(m: Any, x: Any, y: Any) -> Any:
    """Checks of values, as taggers have them (`pytorch-crf`), with a mask of bytes."""
    assert not torch.isnan(x).any(), "no number"
    assert all(z.max() < 5 for z in (x, x))
    message = ""
    if x.min().item() < 0 or x.max() > 5:
        message = f"between 0 and 5, got {x.shape}"
        raise ValueError(message)
    first = x.max() > 7
    second = x.max() < 5
    if not first and not second:
        raise ValueError
    if first or not (second and x.max() < 6):
        raise ValueError
    if not (second and not first and (x.max() < 9 or not second)):
        raise ValueError
    if message is not None and not torch.all(x[1:] < x.max() + 1):
        raise ValueError
    try:
        assert x.max() < 5
    except ValueError as error:
        # An error it remains, as in PyG's aggregations.
        raise RuntimeError from error
    torch._assert(x.max() < 5, "small")
    torch._assert_async(x.max() < 5)
    return torch.where((x > 0.5).byte(), y, -y)


def _drawn_in_vain(m: Any, x: Any, y: Any) -> Any:
    """Layers that are to be left out in no step, as they often are written."""
    return x if random.random() < 0 or random.uniform(1, 2) < 1 or np.random.rand(2).max() < 0 else y  # noqa: NPY002


STEPS = [_checked, _of_times, _of_flags, _by_a_list, _through_data, _data_set, _cached, _drawn_in_vain]
STEPS += [_watched, _by_a_table, _by_memory, _by_views]


@pytest.mark.slow
@pytest.mark.parametrize("formula", STEPS)
def test_steps_are_torchs(formula: Any) -> None:
    torch.manual_seed(0)
    module = Module(formula)
    theirs = copy.deepcopy(module)
    theirs.hold()
    for each in (module, theirs):
        each.views = [each.linear.weight[:, :2]]
    optimizer = torch.optim.SGD(theirs.parameters(), 0.5)
    trainer = ll.Trainer(ll.from_torch(module, torch.rand(2, 3), "mse", torch.optim.SGD(module.parameters(), 0.5)))
    for rows in (2, 4, 3):
        x = torch.rand(rows, 3, generator=torch.Generator().manual_seed(rows))
        loss = nn.functional.mse_loss(theirs(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step({"x": x.numpy(), "target": x.numpy()}).loss == pytest.approx(loss.item(), rel=1e-5)
    trainer.to_torch(module)
    for name in ("linear.weight", "linear.bias", "mean"):
        np.testing.assert_allclose(module.state_dict()[name], theirs.state_dict()[name], rtol=1e-5, atol=1e-6)
    assert module.calls == 0
    assert not [*module.seen, *module.tables, *module.linear._forward_hooks]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (lambda w: nn.Parameter(w.data), r"lie apart, got 'second' and 'linear\.weight' in one memory"),
        (lambda w: nn.Parameter(w.data[1:2]), r"lie apart, got 'linear\.weight' and 'second' in one memory"),
        (lambda w: w.data.view(torch.int32), r"got torch\.int32 of shape \[3, 3\] in that of linear\.weight"),
    ],
)
def test_a_memory_that_a_step_would_not_know_of_is_refused(second: Any, message: str) -> None:
    module = Module(lambda m, _, y: y * m.second.sum())
    module.second = second(module.linear.weight)
    with pytest.raises(UnsupportedOpError, match=message):
        ll.from_torch(module, torch.rand(2, 3), "mse", "sgd")


def _started_once(m: Any, x: Any, y: Any) -> Any:
    if not m.started:
        m.mean.copy_(y.detach().mean(0))
        m.started.fill_(value=True)
    return y - m.mean


@pytest.mark.slow
def test_what_is_done_in_a_first_step_is_done_before() -> None:
    module = Module(_started_once)
    with pytest.raises(
        UnsupportedOpError, match=r"got a branch over the value of started, which forward changes; .*once"
    ):
        ll.from_torch(module, torch.rand(2, 3), "mse", "sgd")
    module(torch.rand(2, 3))
    x = torch.rand(4, 3)
    loss = (
        ll.Trainer(ll.from_torch(module, torch.rand(2, 3), "mse", "sgd"))
        .step({"x": x.numpy(), "target": x.numpy()})
        .loss
    )
    assert loss == pytest.approx(nn.functional.mse_loss(module(x), x).item(), rel=1e-5)


def _random(m: Any, x: Any, y: Any) -> Any:
    return y if torch.ones(2).bernoulli_().sum() > 1 else y * 2


def _changed_before(m: Any, x: Any, y: Any) -> Any:
    times = torch.linspace(0, 1, 4)
    times[1:].add_(y.sum())
    return y if times[1] > 0 else -y


def _of_inputs(m: Any, x: Any, y: Any) -> Any:
    return y if x.sum() > 0 else -y


def _caught(m: Any, x: Any, y: Any) -> Any:
    try:
        assert x.sum() > 0
    except AssertionError:
        return -y
    return y


def _remembering(m: Any, x: Any, y: Any) -> Any:
    y = y if m.remembered is None else y + m.remembered
    m.remembered = y.detach()
    return y


def _seldom_left_out(m: Any, x: Any, y: Any) -> Any:
    return x if np.random.uniform(-1, 1) < -0.99 else y  # noqa: NPY002


def _chosen(m: Any, x: Any, y: Any) -> Any:
    return y * random.choice([1, 2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (_seldom_left_out, "requires random numbers of PyTorch, got results that may depend on those of Python's"),
        (_chosen, "requires random numbers of PyTorch, got results that may depend on those of Python's"),
        (_remembering, "in a second call with the same inputs, since forward changes remembered; a buffer"),
        (_random, r"got: GuardOnDataDependent.* \(test_held.py:\d+\); it cannot trace branches and loops"),
        (_changed_before, r"\(test_held.py:\d+\); it cannot trace branches and loops"),
        (_of_inputs, r"\(test_held.py:\d+\); it cannot trace branches and loops"),
        (_caught, r"\(test_held.py:\d+\); it cannot trace branches and loops"),
    ],
)
def test_refused(formula: Any, message: str) -> None:
    module = Module(formula)
    before, python = torch.get_rng_state(), random.getstate()
    with pytest.raises(UnsupportedOpError, match=message):
        ll.from_torch(module, torch.ones(2, 3), "mse")
    assert torch.equal(before, torch.get_rng_state())
    assert python == random.getstate()


class Continuing(nn.Module):
    """Begins where the last call ended."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.hidden = nn.GRU(3, 3), None

    def forward(self, x: Any) -> Any:
        out, hidden = self.layer(x, self.hidden)
        self.hidden = hidden.detach()
        return out


def test_what_layers_keep_is_not_named() -> None:
    with pytest.raises(UnsupportedOpError, match="since forward changes hidden; a buffer"):
        ll.from_torch(Continuing(), torch.ones(2, 2, 3), "mse")
