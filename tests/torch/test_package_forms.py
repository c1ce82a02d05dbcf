"""Recurrent modules in forms that public packages have: open in batch and length, next to autograd at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.torch.test_python_loops import check_open, sequence  # noqa: E402

I, H = 3, 4  # noqa: E741


class Aggregating(nn.Module):
    """An LSTM over the neighbours of each node, as many as the node with the most has, as PyTorch Geometric has it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(I, H, batch_first=True)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges
        nodes = x.size(0)
        counts = x.new_zeros(nodes, dtype=torch.int64).scatter_add_(0, target, torch.ones_like(target))
        starts = counts.new_empty(nodes + 1)
        starts[:1].zero_()
        torch.cumsum(counts, 0, out=starts[1:])
        most = int(counts.max())
        torch._check(most >= 1)
        places = torch.arange(target.size(0)) - starts[target] + target * most
        rows = torch.as_tensor(0.0).repeat(nodes * most + 1, x.size(1))
        rows[places] = x[source]
        return self.lstm(rows[: nodes * most].view(nodes, most, -1))[0][:, -1]


class Filling(nn.Module):
    """A loop over sequences around one over steps, each of which fills a tensor, as an LRU has them."""

    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.rand(H))
        self.inward, self.outward = nn.Parameter(torch.randn(H, I)), nn.Parameter(torch.randn(I, H))

    def forward(self, x: Any) -> Any:
        results = torch.empty(*x.shape[:-1], I)
        for number, rows in enumerate(x):
            steps, state = torch.empty(x.shape[1], I), torch.zeros(H)
            for t, row in enumerate(rows):
                state = self.decay * state + self.inward @ row
                steps[t] = self.outward @ state
            results[number] = steps
        return results


def _graph(nodes: int, edges: int) -> tuple[Any, Any]:
    return torch.randn(nodes, I), torch.stack(
        [torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,)).sort()[0]]
    )


CASES: dict[type[nn.Module], Callable[[int, int], tuple[Any, ...]]] = {
    Aggregating: _graph,
    Filling: sequence,
}


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_batch_and_length_are_open(make: type[nn.Module]) -> None:
    check_open(make(), CASES[make])
