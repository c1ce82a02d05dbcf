"""Loops in Python whose steps read states of several steps before: next to autograd at three sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from lstm_lower.torch.importer import FixedStepsWarning  # noqa: E402
from tests.torch.test_python_loops import EXAMPLE, OTHERS, compare, loss_of  # noqa: E402

I, H = 3, 4  # noqa: E741


class Dilated(nn.Module):
    """Layers whose steps read the state of one, two and four steps before, as DilatedRNN does."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(size, H) for size in (I, H, H)])

    def forward(self, x: Any) -> Any:
        for layer, cell in enumerate(self.cells):
            states: list[Any] = []
            for t in range(x.size(1)):
                before = states[t - 2**layer] if t >= 2**layer else x.new_zeros(x.size(0), H)
                states.append(cell(x[:, t], before))
            x = torch.stack(states, 1)
        return x


class InTurn(nn.Module):
    """Two states in turn, each of which begins as a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.even, self.odd = nn.Parameter(torch.randn(H)), nn.Parameter(torch.randn(H))
        self.given, self.own = nn.Linear(I, H), nn.Linear(H, H)

    def forward(self, x: Any) -> Any:
        now, then = self.even.expand(x.size(0), -1), self.odd.expand(x.size(0), -1)
        made = []
        for t in range(x.size(1)):
            now, then = then, torch.tanh(self.given(x[:, t]) + self.own(now))
            made.append(then)
        return torch.stack(made, 1), now


class Skipping(nn.Module):
    """Reads the last state and the one before it; the first two steps have less to read."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.last, self.former = nn.Linear(I, H), nn.Linear(H, H), nn.Linear(H, H)

    def forward(self, x: Any) -> Any:
        states: list[Any] = []
        for t in range(x.size(1)):
            z = self.given(x[:, t])
            if t > 0:
                z = z + self.last(states[-1])
            if t > 1:
                z = z + self.former(states[-2])
            states.append(torch.tanh(z))
        return torch.stack(states, 1)


CASES: dict[type[nn.Module], Callable[[int, int], tuple[Any, ...]]] = {
    Dilated: lambda b, t: (torch.randn(b, t, I),),
    InTurn: lambda b, t: (torch.randn(b, t, I),),
    Skipping: lambda b, t: (torch.randn(b, t, I),),
}
# Of how few steps nothing is known.
LEAST = {Skipping: 5}


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_batch_and_length_are_open(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FixedStepsWarning)
        step = ll.from_torch(module, CASES[make](*EXAMPLE), loss_of, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for batch, steps in (EXAMPLE, *OTHERS):
        if steps >= LEAST.get(make, 1):
            compare(module, session, CASES[make](batch, steps))


class Far(nn.Module):
    """Reads a state of more steps before than are traced."""

    def forward(self, x: Any) -> Any:
        states = [torch.zeros(x.size(0), I)] * 9
        for t in range(x.size(1)):
            states.append(torch.tanh(x[:, t] + states[-9]))
        return torch.stack(states[9:], 1)


@pytest.mark.slow
def test_a_state_of_too_many_steps_before_fixes_the_length() -> None:
    with pytest.warns(FixedStepsWarning, match=r"a loop in Python goes over 5 steps \(test_steps_of_loops.py:\d+\)"):
        step = ll.from_torch(Far(), torch.randn(2, 5, I), loss_of, example_targets=(), what="input_gradient")
    with pytest.raises(ll.InvalidInputError, match="requires shape"):
        ll.Session(step, providers=["CPUExecutionProvider"]).run({"x": torch.randn(2, 12, I).numpy()})
