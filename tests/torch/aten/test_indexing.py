"""Reading and writing by indices and masks next to PyTorch, with equal indices, negative ones and ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812 (PyTorch's own name for it)

from lstm_lower import LstmLowerError, Session  # noqa: E402
from tests.support.aten import ARRAYS, TIES, Called, check_together, drawn, translated  # noqa: E402

aten = torch.ops.aten


def at(*places: int) -> Any:
    return torch.tensor(places)


def _assigned(x: Any) -> Any:
    y = x.clone()
    y[x > 0] = 2.0
    y[:, 1] += 1
    y[:, [0, 2]] = x[:, 1:2] * 3
    y[x > 0.3] = x[x > 0.3] * 2
    rows = x[:, :, 0] > 0
    y[rows] = x[rows] * 2
    return y


def _combined(reduce: str, *, include_self: bool) -> Any:
    return lambda x: x.scatter_reduce(1, (x > 0).long(), x, reduce, include_self=include_self)


FUNCTIONS: dict[str, Any] = {
    "index_of_constants": lambda x: (
        x[at(0, 1)],
        x[at(0, 1), :, at(0, 1)],
        x[:, :, at(-1)],
        x[at(0, -1).int(), at(1, 1).int()],
        x[[0, 1], None],
    ),
    "masks": lambda x: (x[x > 0], x[x[:, :, 0] > 0], x[:, x[0, :, 0] > 0]),
    "assignment": _assigned,
    "index_put": lambda x: (
        x.index_put((at(0, 0, 1),), x[:1], accumulate=True),
        x.index_put((at(0, 0, 1), at(1, 1, 2)), x[0, 0, :1], accumulate=True),
        x.index_put((at(0, 1),), x[:2] * 2),
        aten.index_put(x, [None, at(0, 1), at(0, 1)], x[:, :2, 0] * 2, accumulate=True),
        aten.index_put(x, [at(0, 1), None, at(0, 1)], x[:2, :, 0] * 2, accumulate=True),
    ),
    "index_select": lambda x: (
        x.index_select(1, at(2, 0, 0)),
        x.index_select(0, torch.tensor(1)),
        x.sum().index_select(0, at(0)),
    ),
    "gather": lambda x: (
        x.gather(1, torch.argsort(x, dim=1)),
        x.gather(1, at(0, 1).reshape(1, 2, 1)),
        torch.take_along_dim(x, torch.argsort(x, dim=1)[:1, ..., :1], 1),
        torch.take_along_dim(x, at(0, 5)),
        x.take(at(0, -1)),
    ),
    "scatter": lambda x: (
        x.scatter(1, at(0, 1).reshape(1, 2, 1), x.detach()),
        x.scatter(1, at(0, 1).reshape(1, 2, 1), 2.0),
        x.detach().scatter(1, at(0, 0).reshape(1, 2, 1), x.detach(), reduce="add"),
        x.detach().scatter(1, at(0, 0).reshape(1, 2, 1), 2.0, reduce="multiply"),
        x.scatter_add(1, (x > 0).long(), x.exp()),
    ),
    "index_reduce": lambda x: (
        x.index_reduce(1, at(1, 1, 0), x[:, 1:4].exp(), "mean"),
        x.index_reduce(0, at(1, 1), x[:2] * 2, "amax", include_self=False),
        x.index_reduce(1, at(1, 1, 0), x[:, 1:4].exp(), "prod"),
    ),
    "index_add": lambda x: (
        x.index_add(1, at(0, 0), x[:, :2]),
        x.index_add(0, at(0, 0), x[:2], alpha=2),
        x.index_copy(1, at(0, 1), x[:, 1:3] * 2),
        x.index_copy(0, at(0, 1), x[1:3] * 2),
        x.index_fill(1, at(0, -1), 2.0),
        x.index_fill(0, at(1), x.sum()),
    ),
    "put": lambda x: (
        x.put(at(1, 3), x[0, 0, :2].exp(), accumulate=True),
        x.put(at(1, -3), x[0, 0, :2].exp()),
    ),
    "masked": lambda x: (
        x.masked_fill(x > 0, 1.0),
        x.masked_fill(x[0] > 0, x.sum()),
        x.masked_select(x > 0),
        x[0].masked_select(x[:, :1] > 0),
        x.masked_scatter(x > 0, x.flip(1)),
        x.masked_scatter(x[0] > 0, x.flip(1)),
    ),
    "one_hot": lambda x: (F.one_hot((x > 0).long(), 3), F.one_hot((x > 0).long(), x.shape[1])),
    "histc": lambda x: (torch.histc(x.detach(), 5), torch.histc(x.detach(), 4, -1, 1)),
}

FUNCTIONS_OF_TIES: dict[str, Any] = {
    "nonzero": lambda x: ((x > 0).nonzero(), *torch.where(x > 0), (x * 0).sum().nonzero(), torch.argwhere(x)),
    "searchsorted": lambda x: (
        torch.searchsorted(torch.arange(-1.0, 3.0).to(x.dtype), x),
        torch.searchsorted(torch.sort(x)[0], x, right=True),
        torch.bucketize(x, torch.arange(-1.0, 3.0).to(x.dtype), right=True),
        torch.searchsorted(torch.arange(5.0), 2.0),
    ),
    "unique": lambda x: torch.unique(x.detach(), return_inverse=True, return_counts=True),
    "unique_dim": lambda x: torch.unique(x[0, :, :1].detach(), dim=0, return_inverse=True, return_counts=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x.detach(), return_inverse=True, return_counts=True),
    "bincount": lambda x: (torch.bincount(x.abs().long().flatten(), minlength=9), torch.bincount(x.abs().long()[0, 0])),
    "isin": lambda x: torch.isin(x.long(), at(0, 2)),
    "scatter_of_integers": lambda x: (
        x.long().scatter_reduce(1, (x > 0).long(), x.long() * 3, "mean", include_self=False),
        x.long().scatter_reduce(1, (x > 0).long(), x.long() - 100, "amax", include_self=False),
    ),
    **{
        f"scatter_reduce_{reduce}_{include_self}": _combined(reduce, include_self=include_self)
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for include_self in (True, False)
        # Gradients of a product of several zeros are none in PyTorch.
        if reduce != "prod"
    },
}

CASES: dict[str, Any] = {
    **{name: (function, *ARRAYS) for name, function in FUNCTIONS.items()},
    **{name: (function, *TIES) for name, function in FUNCTIONS_OF_TIES.items()},
    "scatter_reduce_prod": (lambda x: x.scatter_reduce(1, (x > 0).long(), x.cos() + 2, "prod"), *ARRAYS),
    "index": (
        lambda x, i: (x[i], x[:, i], x[i, i], x[:, i, 0], x[0, i], x[i, :, 0], x[:, i, torch.zeros_like(i)]),
        (drawn(4, 7, 3), torch.tensor([[0, 2], [1, -1]])),
        (drawn(5, 6, 2), torch.tensor([[1], [0], [3]])),
    ),
}


# PyTorch's own word on `reduce`, and on what is new in it.
@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter", "ignore:index_reduce")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    function, *examples = CASES[name]
    check_together(function, *examples, dtypes=(torch.float32,))


REFUSED: dict[str, Any] = {
    "gather": lambda x, i: x.gather(0, i),
    "index_select": lambda x, i: x.index_select(0, i),
    "scatter": lambda x, i: x.scatter(0, i, 1.0),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "one_hot": lambda x, i: F.one_hot(i, 4),  # noqa: ARG005
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("place", [-1, 9])
def test_indices_out_of_range_are_refused_as_in_pytorch(name: str, place: int) -> None:
    function, x = REFUSED[name], drawn(4)
    model, _ = translated(Called(function), x, at(0, 2), fixed=True)
    session, places = Session(model), at(1, place)
    with pytest.raises((RuntimeError, IndexError)):
        function(x, places)
    with pytest.raises(LstmLowerError):
        session.run({"x0": x.numpy(), "x1": np.asarray(places)})
