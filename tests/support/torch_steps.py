"""Long runs of PyTorch's optimizers on recurrent classifiers, in PyTorch and in `ll.Trainer`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import lstm_lower as ll

FEATURES, HIDDEN, CLASSES = 6, 16, 5

KINDS: dict[str, type[nn.RNNBase]] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}

# Rates at which the loss of the task below falls and that PyTorch's users take.
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
    "Adam": lambda weights: torch.optim.Adam(weights, lr=0.01),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.01),
    "RMSprop": lambda weights: torch.optim.RMSprop(weights, lr=0.003),
    "Adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.03),
    "Adadelta": lambda weights: torch.optim.Adadelta(weights, lr=1.0),
    "Adamax": lambda weights: torch.optim.Adamax(weights, lr=0.01),
    "NAdam": lambda weights: torch.optim.NAdam(weights, lr=0.01),
    "RAdam": lambda weights: torch.optim.RAdam(weights, lr=0.01),
    "ASGD": lambda weights: torch.optim.ASGD(weights, lr=0.1, t0=20),
    "Rprop": lambda weights: torch.optim.Rprop(weights, lr=0.001, step_sizes=(1e-5, 0.01)),
}


class Classifier(nn.Module):
    """Classes of sequences, by the state after the last step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.recurrent = KINDS[kind](FEATURES, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, classes] of `x` [B, T, features]."""
        scores: Tensor = self.head(self.recurrent(x)[0][:, -1])
        return scores


def batch(number: int) -> tuple[Tensor, Tensor]:
    """Sequences, and which of their first features has the largest sum; sizes are of the number."""
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(4 + number % 7, 2 + number % 11, FEATURES, generator=generator)
    return x, x.sum(1)[:, :CLASSES].argmax(-1)


def losses(kind: str, optimizer: str, steps: int) -> tuple[list[float], list[float], list[float]]:
    """The losses of all steps, in `ll.Trainer`, in PyTorch, and in PyTorch in float64."""
    torch.manual_seed(0)
    module = Classifier(kind)
    wide = copy.deepcopy(module).double()
    chosen = OPTIMIZERS[optimizer](module.parameters())
    criterion = nn.CrossEntropyLoss()
    trainer = ll.Trainer(ll.from_torch(module, batch(0)[0], criterion, chosen), providers=["CPUExecutionProvider"])
    batches = [batch(number) for number in range(steps)]
    ours = [trainer.step({"x": x.numpy(), "target": target.numpy()}).loss for x, target in batches]
    exact = _trained(wide, OPTIMIZERS[optimizer](wide.parameters()), [(x.double(), target) for x, target in batches])
    return ours, _trained(module, chosen, batches), exact


def _trained(
    module: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[tuple[Tensor, Tensor]]
) -> list[float]:
    """The losses of PyTorch's steps."""
    found = []
    for x, target in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(x), target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        found.append(loss.item())
    return found
