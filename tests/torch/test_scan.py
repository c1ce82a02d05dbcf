"""`ll.scan` keeps batch and length open whatever its step reads, and however states lie in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._higher_order_ops import while_loop  # noqa: E402

from lstm_lower.torch.importer import FixedStepsWarning  # noqa: E402
from tests.torch.test_python_loops import compare, loss_of  # noqa: E402

I, H = 3, 4  # noqa: E741


class Scanned(nn.Module):
    """Steps of a cell and of something behind it, which may read the length, in the place of a loop."""

    def __init__(self, behind: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.cell, self.own, self.behind = nn.GRUCell(I, H), nn.Linear(H, H), behind
        # Control flow in PyTorch's own functions, or in Python.
        self.plain = False

    def forward(self, x: Any) -> Any:
        behind = self.behind(self, x, x.size(1))

        def step(h: Any, part: Any) -> Any:
            h = behind(self.cell(part, h), part)
            return h, h

        return ll.scan(step, x.new_zeros(x.size(0), H), x, axis=1)[1]


def transposed(module: Scanned, x: Any, count: Any) -> Any:
    del module, x, count
    return lambda h, _: h.t().contiguous().t()


def length(module: Scanned, x: Any, count: Any) -> Any:
    """The length in numbers, in sizes, in slices, and in what is computed of it inside and outside."""
    half, scale = count // 2, 1 / count - (count + 1) ** -0.5

    def behind(h: Any, part: Any) -> Any:
        h = h / count + torch.arange(count).float().mean() / (half + 1) + scale
        return h * (part[:, :1] + count).sigmoid() + x[:, : count // 3 + 1].sum(1)[:, :1] + x.new_ones(count, H).mean(0)

    return behind


def within(module: Scanned, x: Any, count: Any) -> Any:
    """A scan within, which reads weights, a part, a sequence and a size from outside of both."""

    def behind(h: Any, part: Any) -> Any:
        def step(s: Any, other: Any) -> Any:
            s = torch.tanh(module.own(s) + (other * part).mean() / count)
            return s.t().contiguous().t(), s

        return ll.scan(step, h, x, axis=1)[0]

    return behind


def constants(module: Scanned, x: Any, count: Any) -> Any:
    """Tensors of numbers that a step makes."""
    del module, x

    def behind(h: Any, _: Any) -> Any:
        h = h * torch.tensor([[0.5, 1, 2, True]]) + torch.tensor(1.0 / count, dtype=torch.float64).float()
        return torch.where(torch.tensor([True, False, True, True]), h, torch.tensor([1, count, 3, 4]) / 100)

    return behind


def branches(module: Scanned, x: Any, count: Any) -> Any:
    """A branch and a loop within, which do the same."""

    def behind(h: Any, part: Any) -> Any:
        if module.plain:
            h = module.own(h).tanh() if part.sum() > 0 else h * (1 / count)
            return module.own(module.own(h).tanh()).tanh()
        h = torch.cond(part.sum() > 0, lambda: module.own(h).tanh(), lambda: h * (1 / count))
        return while_loop(lambda n, _: n < 2, lambda n, h: (n + 1, module.own(h).tanh()), (torch.tensor(0), h))[1]

    return behind


@pytest.mark.slow
@pytest.mark.parametrize("behind", [transposed, length, within, constants, branches], ids=lambda x: x.__name__)
def test_batch_and_length_are_open(behind: Any) -> None:
    torch.manual_seed(0)
    module = Scanned(behind)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FixedStepsWarning)
        step = ll.from_torch(module, torch.randn(2, 5, I), loss_of, example_targets=(), what="gradients")
    session, module.plain = ll.Session(step, providers=["CPUExecutionProvider"]), True
    for batch, steps in ((2, 5), (3, 9), (1, 1)):
        compare(module, session, (torch.randn(batch, steps, I),))
