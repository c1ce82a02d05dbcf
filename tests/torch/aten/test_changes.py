"""Changes in place, and operators that are taken apart one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from lstm_lower.torch.aten.changes import are_separate  # noqa: E402
from tests.support.aten import Called, check, drawn, traced  # noqa: E402


def _several(x: Tensor) -> Tensor:
    y = x + 1
    y[x > 0] = 0
    z = y
    y.mul_(x).add_(2)
    return y * z


def _after_a_view(x: Tensor) -> Tensor:
    y = x * 2
    first = y[0] + 1
    y.exp_()
    return y + first


def _under_a_view(x: Tensor) -> Tensor:
    y = x * 2
    row = y[0]
    y.mul_(x)
    return y + row


def _through_a_view(x: Tensor) -> Tensor:
    y = x * 2
    y[:, 0] = 3
    return y * y


def _through_a_detached(x: Tensor) -> Tensor:
    y = x * 2
    still = y.detach()
    y.mul_(x)
    return y + still


_CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "several": (_several, True),
    "after a view": (_after_a_view, True),
    "zeros": (lambda x: torch.ones_like(x).zero_() + x, True),
    "a layer": (nn.ReLU(inplace=True), True),
    "another shape": (lambda x: (x * 2).unsqueeze_(0).transpose_(1, 2).mul_(3), True),
    "under a view": (_under_a_view, False),
    "through a view": (_through_a_view, False),
    "through what is detached": (_through_a_detached, False),
}


@pytest.mark.parametrize("name", _CHANGES)
def test_changes_in_place(name: str) -> None:
    function, is_separate = _CHANGES[name]
    examples = [[torch.randn(3, 4)], [torch.randn(5, 4)]]
    assert are_separate(traced(Called(lambda x: function(x * 1)), *examples[0]).graph_module) == is_separate
    check(lambda x: function(x * 1), *examples, dtypes=[torch.float32])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.hstack([x, x.square()]),
        lambda x: nn.functional.cosine_similarity(x, x + 1),
        lambda x: torch.quantile(x, 0.3, dim=1),
        lambda x: torch.std_mean(x, 1)[0],
    ],
    ids=["hstack", "cosine_similarity", "quantile", "std_mean"],
)
def test_calls_that_are_taken_apart(function: Callable[[Tensor], Tensor]) -> None:
    check(function, [torch.randn(3, 4)], [torch.randn(5, 4)], dtypes=[torch.float32])


class _Flattened(nn.Module):
    """Changes elements in the order in which a copy of a result has them: in a view of it, or in a copy again."""

    def __init__(self, function: Callable[[Tensor], Tensor | tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        made = self.function(x)
        copied = (made[0] if isinstance(made, tuple) else made).clone()
        copied.reshape(-1)[::2] += 1
        return copied


@pytest.mark.parametrize(
    "function",
    [
        nn.RNN(3, 4, batch_first=True, bidirectional=True),
        nn.LSTM(3, 4, batch_first=True),
        nn.GRU(3, 4, 2),
        lambda x: torch.linalg.lstsq(x, x.cos()).solution,
        lambda x: functional.affine_grid(x[:, :2], [4, 3, 4, 5], align_corners=False),
        lambda x: functional.fractional_max_pool2d(x, 2, (3, 2), _random_samples=torch.full((1, 4, 2), 0.4)),
    ],
)
def test_results_lie_in_memory_as_pytorchs_do(function: Callable[[Tensor], Tensor]) -> None:
    check(_Flattened(function), [drawn(4, 7, 3)], fixed=True, dtypes=[torch.float32])
