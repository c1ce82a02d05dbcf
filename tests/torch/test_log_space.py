"""Recursions in log space by hand, with what stands for minus infinity: open in batch and length, next to autograd."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

from lstm_lower.torch.importer import FixedStepsWarning  # noqa: E402
from tests.torch.test_python_loops import EXAMPLE, OTHERS  # noqa: E402

# Sizes of inputs and labels; how much longer the texts are that no input holds.
I, V, MORE = 3, 5, 3  # noqa: E741


class Alignments(nn.Module):
    """All alignments of a text between blanks (CTC), each sequence of a length of its own."""

    def __init__(self, low: float) -> None:
        super().__init__()
        self.low, self.scores = low, nn.Linear(I, V)

    def forward(self, x: Any, text: Any, steps: Any, letters: Any) -> Any:
        scores, count = self.scores(x).log_softmax(-1), 2 * text.size(1) + 1
        placed = torch.zeros(x.size(0), count, dtype=torch.long)
        placed[:, 1::2] = text
        same = torch.cat([torch.ones_like(placed[:, :2]).bool(), placed[:, 2:] == placed[:, :-2]], 1)
        emitted = scores.gather(2, placed.unsqueeze(1).expand(-1, x.size(1), -1))
        a = torch.full((x.size(0), count), self.low)
        a[:, :2] = emitted[:, 0, :2]
        for t in range(1, x.size(1)):
            one, two = (F.pad(a, (by, 0), value=self.low)[:, :-by] for by in (1, 2))
            ways = torch.stack([a, one, two.masked_fill(same, self.low)], -1)
            a = torch.where((t < steps)[:, None], torch.logsumexp(ways, -1) + emitted[:, t], a)
        ends = a.gather(1, torch.stack([2 * letters, 2 * letters - 1], 1))
        return -torch.logsumexp(ends, 1)


class Paths(nn.Module):
    """All paths of a linear chain (CRF) into no last label, beside the given one."""

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.moves = nn.Linear(I, V), nn.Parameter(torch.randn(V, V - 1))

    def forward(self, x: Any, labels: Any, steps: Any) -> Any:
        scores, moves = self.scores(x), F.pad(self.moves, (0, 1), value=-1e30)
        seen = torch.arange(x.size(1)) < steps[:, None]
        a = F.pad(x.new_zeros(x.size(0), 1), (0, V - 1), value=-1e30)
        before, given = torch.zeros_like(steps), torch.zeros(x.size(0))
        for t in range(x.size(1)):
            following = torch.logsumexp(a[:, :, None] + moves + scores[:, t, None], 1)
            a = torch.where(seen[:, t, None], following, a)
            score = scores[:, t].gather(1, labels[:, t, None]).squeeze(1) + moves[before, labels[:, t]]
            given = given + score * seen[:, t]
            before = torch.where(seen[:, t], labels[:, t], before)
        return torch.logsumexp(a, 1) - given


class States(nn.Module):
    """Hidden states that only move on (HMM), read where each sequence ends."""

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.moves = nn.Linear(I, V), nn.Parameter(torch.randn(V, V))
        self.register_buffer("back", torch.ones(V, V).tril(-1).bool())

    def forward(self, x: Any, steps: Any) -> Any:
        scores = self.scores(x).log_softmax(-1)
        moves = self.moves.masked_fill(self.back, -math.inf).log_softmax(-1)
        a = scores[:, 0] + F.pad(torch.zeros(1, 1), (0, V - 1), value=-1e9)
        made = [a]
        for t in range(1, x.size(1)):
            a = scores[:, t] + torch.logsumexp(a.unsqueeze(2) + moves, 1)
            made.append(a)
        return torch.logsumexp(torch.stack(made, 1)[torch.arange(x.size(0)), steps - 1], -1)


def _counts(batch: int, most: int) -> Any:
    counts = torch.randint(min(3, most), most + 1, (batch,))
    counts[0] = most
    return counts


def _spoken(batch: int, steps: int, letters: int) -> tuple[Any, ...]:
    text = torch.randint(1, V, (batch, letters))
    return torch.randn(batch, steps, I), text, _counts(batch, steps), _counts(batch, letters)


def _labelled(batch: int, steps: int) -> tuple[Any, ...]:
    return torch.randn(batch, steps, I), torch.randint(0, V - 1, (batch, steps)), _counts(batch, steps)


CASES: dict[str, tuple[Callable[[], Any], Callable[[int, int], tuple[Any, ...]]]] = {
    "1e30": (lambda: Alignments(-1e30), lambda batch, steps: _spoken(batch, steps, 3)),
    "1e9": (lambda: Alignments(-1e9), lambda batch, steps: _spoken(batch, steps, 3)),
    "impossible": (lambda: Alignments(-1e30), lambda batch, steps: _spoken(batch, steps, steps + MORE)),
    "Paths": (Paths, _labelled),
    "States": (States, lambda batch, steps: (torch.randn(batch, steps, I), _counts(batch, steps))),
}


def mean(result: Any) -> Any:
    return result.mean()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_batch_and_length_are_open(name: str) -> None:
    torch.manual_seed(0)
    make, inputs_of = CASES[name]
    module = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FixedStepsWarning)
        step = ll.from_torch(module, inputs_of(*EXAMPLE), mean, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for batch, steps in (EXAMPLE, *OTHERS):
        inputs = inputs_of(batch, steps)
        got = session.run(dict(zip(session.inputs, (x.numpy() for x in inputs), strict=True)))
        module.zero_grad()
        loss = mean(module(*inputs))
        loss.backward()
        np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-5)
        for weight, parameter in module.named_parameters():
            wanted = parameter.grad.numpy()
            np.testing.assert_allclose(got[f"grad/{weight}"], wanted, rtol=1e-4, atol=1e-5, err_msg=weight)
