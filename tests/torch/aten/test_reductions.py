"""Reductions, norms, orders and cumulative sums next to PyTorch, with ties, scalars and what is no number."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.aten import ARRAYS, TIES, check_together  # noqa: E402

FUNCTIONS: dict[str, Any] = {
    "sum": lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.sum(dtype=torch.float64).to(x.dtype)),
    "mean": lambda x: (x.mean(), x.mean(1), x.mean((0, 2), keepdim=True)),
    "prod": lambda x: (x.prod(), x.prod(1), x.prod(1, keepdim=True)),
    "var": lambda x: (
        x.var(1),
        x.var(),
        x.var((0, 1), correction=0, keepdim=True),
        x.var((0, 1), correction=2.5),
        *torch.var_mean(x, 1),
    ),
    "std": lambda x: (x.std(1), x.std(), *torch.std_mean(x, (0, 1), keepdim=True), (x * 0 + 2).std(1)),
    "logsumexp": lambda x: (x.logsumexp(1), (x * 200).logsumexp((0, 1), keepdim=True)),
    "norm": lambda x: (
        *(x.norm(p=p, dim=1) for p in (2, 3, 1, math.inf, -math.inf, 0, 0.5)),
        x.norm(),
        x.norm(p=1, dim=(0, 1)),
        (x * 0).norm(dim=1),
        torch.linalg.matrix_norm(x),
        torch.linalg.matrix_norm(x, 1),
        torch.linalg.matrix_norm(x, -math.inf, (0, 1), keepdim=True),
        torch.renorm(x, 2, 0, 1.0),
    ),
    "distances": lambda x: (
        torch.dist(x, x * 2),
        torch.dist(x, x * 2, 1),
        torch.cdist(x, x),
        torch.cdist(x, x * 2, 1.0),
        torch.cdist(x, x * 2, math.inf),
        torch.pdist(x[:, 0], 1),
    ),
    "cumulative": lambda x: (
        x.cumsum(1),
        x.cumprod(1),
        x.logcumsumexp(1),
        (x * 100).logcumsumexp(-1),
        x.long().cumsum(0),
        (x > 0).cumsum(1),
    ),
    "topk": lambda x: (*x.topk(2, 1), *x.topk(1, 1, largest=False), x.topk(x.shape[1] - 1, 1)[0]),
    "kthvalue": lambda x: (*x.kthvalue(2, 1), x.kthvalue(1, 1, keepdim=True)[0], x.quantile(0.3, dim=1)),
    "median": lambda x: (*x.median(1), x.median()),
    "cov": lambda x: (x[0].mT.cov(), x[0].mT.corrcoef(), x[0].mT.cov(aweights=x[1, :, 0].abs()), x[0, :, 0].cov()),
    "cov_of_one": lambda x: (x[:1, :, 0].cov(), x[:1, :, 0].corrcoef(), x[0, :, 0].corrcoef()),
}

FUNCTIONS_OF_TIES: dict[str, Any] = {
    "prod_of_zeros": lambda x: (x.prod(1), x.prod()),
    "any": lambda x: (x.bool().any(1), x.bool().all(), x.bool().any((0, 1)), x.any(), x.count_nonzero(1), x.all(2)),
    "max": lambda x: (x.max(), x.min(), x.amax(1), x.amin((0, 2), keepdim=True), *x.aminmax(dim=1)),
    "max_with_places": lambda x: (*x.max(1), *x.min(-1, keepdim=True)),
    "max_of_integers": lambda x: (
        x.long().max(1)[0],
        x.int().amax(1),
        x.abs().to(torch.uint8).amin(),
        x.bool().amax(1),
    ),
    "argmax": lambda x: (x.argmax(1), x.argmin(), x.argmax(0, keepdim=True), x.argmin(keepdim=True)),
    "norm_of_ties": lambda x: (x.norm(p=math.inf, dim=1, keepdim=True), x.norm(p=3, dim=1), x.norm(p=1, dim=1)),
    "cummax": lambda x: (*x.cummax(1), *x.cummin(-1)),
    "sort": lambda x: (
        *torch.sort(x, dim=1, stable=True),
        *torch.sort(x, stable=True, descending=True),
        torch.argsort(x, dim=1, stable=True),
        x.msort(),
    ),
    "median_of_ties": lambda x: (x.median(1)[0], x.median()),
    "mode": lambda x: (*x.mode(1), *x.mode(keepdim=True)),
}

_SPOILED = tuple((torch.where(x > 0.8, math.nan, x),) for (x,) in ARRAYS)
_ENDLESS = (torch.where(ARRAYS[0][0] > 0.5, -math.inf, ARRAYS[0][0]).index_fill(0, torch.tensor(1), -math.inf),)

CASES: dict[str, Any] = {
    **{name: (function, *ARRAYS) for name, function in FUNCTIONS.items()},
    **{name: (function, *TIES) for name, function in FUNCTIONS_OF_TIES.items()},
    "nanmedian": (lambda x: (x.nanmedian(1, keepdim=True)[0], x.nanmedian(), x.nansum(1), x.nanmean(1)), *_SPOILED),
    "median_of_nan": (lambda x: (x.median(1)[0], x.median()), *_SPOILED),
    "cummax_of_nan": (lambda x: (*x.cummax(1), *x.cummin(-1)), *_SPOILED),
    "logsumexp_of_nothing": (lambda x: x.logsumexp(1), _ENDLESS),
    # The logarithm of a count is lost beside what stands for minus infinity: shares are 1 each.
    "logsumexp_of_little": (lambda x: (x - 1e30).logsumexp(1), *ARRAYS),
    "scalars": (
        lambda x: (
            x.sum(),
            x.sum(0),
            x.amax(),
            x.max(0)[0],
            x.argmax(),
            x.var(correction=0),
            x.cumsum(0),
            x.cumprod(0),
            x.sort()[0],
            x.norm(),
            x.logsumexp(0),
            x.cummax(0)[0],
            x.median(),
            x.topk(1)[0],
        ),
        (torch.tensor(1.5),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    function, *examples = CASES[name]
    check_together(function, *examples)
