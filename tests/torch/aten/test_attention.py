"""Attention next to PyTorch's: masks, of which some leave a query nothing to look at, and shared heads."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.support.aten import check  # noqa: E402


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _operands(*lead: int, queries: int, keys: int) -> list[Tensor]:
    return [_random(*lead, queries, 4), _random(*lead, keys, 4), _random(*lead, keys, 3)]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
@pytest.mark.parametrize("lead", [(2, 3), (2,)])
def test_attention(lead: tuple[int, ...], options: dict[str, Any]) -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, **options)

    check(attention, _operands(*lead, queries=5, keys=6), _operands(*(x + 1 for x in lead), queries=4, keys=2))


def test_masks() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, mask)

    mask = torch.ones(5, 6).tril(1).bool()
    mask[2] = False
    other = torch.rand(4, 2, generator=torch.Generator().manual_seed(1)) > 0.5
    first, second = _operands(2, 3, queries=5, keys=6), _operands(1, 2, queries=4, keys=2)
    check(attention, [*first, mask], [*second, other])
    added = torch.where(mask, _random(5, 6), -math.inf)
    check(lambda q, k, v, m: attention(q, k, v, m.detach()), [*first, added], [*second, _random(4, 2)])


def test_shared_heads() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    first = [_random(2, 4, 5, 4), _random(2, 2, 6, 4), _random(2, 2, 6, 3)]
    check(attention, first, fixed=True)
    check(attention, first, [_random(1, 4, 3, 4), _random(1, 2, 2, 4), _random(1, 2, 2, 3)])
