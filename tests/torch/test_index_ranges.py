"""Indices that PyTorch refuses fail in the model, and those that it counts from the end are counted so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError

torch = pytest.importorskip("torch")
functional = torch.nn.functional

ROWS = 4
BAD = (-1, ROWS, -ROWS - 1)
Function = Callable[[Any, Any], Any]


def _scattered(w: Any, i: Any) -> Any:
    return (w * 1).scatter_(0, i[:, None], 1.0)


# Of weights [4, 3] and indices [2].
OPERATIONS: dict[str, Function] = {
    "embedding": lambda w, i: functional.embedding(i, w),
    "embedding of int32": lambda w, i: functional.embedding(i.int(), w),
    "embedding with padding": lambda w, i: functional.embedding(i, w, padding_idx=1),
    "embedding by frequency": lambda w, i: functional.embedding(i, w, scale_grad_by_freq=True),
    "embedding_bag": lambda w, i: functional.embedding_bag(i[None], w),
    "index_select": lambda w, i: w.index_select(0, i),
    "gather": lambda w, i: w.gather(0, i[:, None]),
    "take": lambda w, i: torch.take(w, i * 3),
    "take_along_dim": lambda w, i: torch.take_along_dim(w, i[:, None], 0),
    "take_along_dim of all": lambda w, i: torch.take_along_dim(w, i * 3),
    "x[i]": lambda w, i: w[i],
    "x[:, i]": lambda w, i: w.T[:, i],
    "x[i, j]": lambda w, i: w[i, torch.arange(2)],
    "scatter": lambda w, i: w.scatter(0, i[:, None], torch.ones(2, 1)),
    "scatter in place": _scattered,
    "scatter_add": lambda w, i: w.scatter_add(0, i[:, None], torch.ones(2, 1)),
    "scatter_reduce": lambda w, i: w.scatter_reduce(0, i[:, None], torch.ones(2, 1), "mean"),
    "index_add": lambda w, i: w.index_add(0, i, torch.ones(2, 3)),
    "index_copy": lambda w, i: w.index_copy(0, i, torch.ones(2, 3)),
    "index_fill": lambda w, i: w.index_fill(0, i, 9.0),
    "index_put": lambda w, i: w.index_put((i,), torch.ones(2, 3), accumulate=True),
    "index_reduce": lambda w, i: w.index_reduce(0, i, torch.ones(2, 3), "amax"),
    "one_hot": lambda w, i: functional.one_hot(i, ROWS).float() @ w,
    "cross_entropy": lambda w, i: functional.cross_entropy(w[:, :2].T, i),
    "cross_entropy of each": lambda w, i: functional.cross_entropy(w[:, :2].T, i, reduction="none"),
    "cross_entropy smoothed": lambda w, i: functional.cross_entropy(w[:, :2].T, i, label_smoothing=0.1),
    "cross_entropy ignoring": lambda w, i: functional.cross_entropy(w[:, :2].T, i, ignore_index=-1),
    "nll_loss": lambda w, i: functional.nll_loss(w[:, :2].T.contiguous()[..., None, None], i[:, None, None]),
    "multilabel_margin_loss": lambda w, i: functional.multilabel_margin_loss(
        w[:, :2].T, torch.stack([i, i * 0, i * 0 - 1, i * 0 - 1], 1)
    ),
}


class _All(torch.nn.Module):  # type: ignore[misc]
    """Every operation, with indices of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(12.0).reshape(ROWS, 3) / 8)

    def forward(self, **indices: Any) -> Any:
        return sum(
            operation(self.weight, i).sum() for operation, i in zip(OPERATIONS.values(), indices.values(), strict=True)
        )


@pytest.mark.slow
def test_indices_are_refused_where_pytorch_refuses_them() -> None:
    names = [f"i{number}" for number in range(len(OPERATIONS))]
    good = dict.fromkeys(names, torch.tensor([1, 0]))
    module = _All()
    step = ll.from_torch(module, good, lambda loss: loss, what="gradients", example_targets=(), dynamic_shapes=None)
    session = ll.Session(ll.lower(step))
    weight = module.weight.detach()
    each = {n: float(function(weight, good[n]).sum()) for n, function in zip(names, OPERATIONS.values(), strict=True)}
    others = {name: sum(each.values()) - own for name, own in each.items()}
    for name, (operation, function) in zip(names, OPERATIONS.items(), strict=True):
        for number in BAD:
            feeds = {n: np.array([number if n == name else 1, 0]) for n in names} | {"weight": weight.numpy()}
            try:
                wanted = float(function(weight, torch.tensor([number, 0])).sum())
            except (IndexError, RuntimeError):
                with pytest.raises(InvalidInputError, match="onnxruntime failed on these feeds"):
                    session.run(feeds)
                continue
            found = session.run(feeds, ["loss"])["loss"]
            np.testing.assert_allclose(found, others[name] + wanted, rtol=1e-5, err_msg=f"{operation} {number}")


def test_nothing_is_looked_at_where_no_index_can_be_negative() -> None:
    class Chosen(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, 4))

        def forward(self, x: Any) -> Any:
            places = torch.arange(x.shape[0])
            best = x.argmax(1) % 4
            return functional.embedding(best, self.weight) + functional.embedding(places, self.weight) + x

    step = ll.from_torch(Chosen(), torch.zeros(3, 4), lambda y: y.sum(), what="gradients", example_targets=())
    assert not {"Less", "Where"} & {node.op_type for node in step.graph.node}
