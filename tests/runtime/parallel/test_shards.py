"""Batches divided into rows, outputs put together, and what a loss is over rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.parallel.shards import Rowwise, reduction_of

Array = np.ndarray[Any, Any]


def declared(*shape: int | str, dtype: str = "float", name: str = "x") -> Any:
    return SimpleNamespace(name=name, shape=list(shape), type=f"tensor({dtype})")


def rowwise() -> Rowwise:
    inputs = [declared(5, "B", 3, name="x"), declared("B", name="y"), declared(name="scale")]
    outputs = {
        "rows": declared("B", 2),
        "turned": declared("T", "B"),
        "accuracy": declared(),
        "count": declared(dtype="int64"),
        "norms": declared(4),
    }
    return Rowwise(Layout(inputs), outputs)


def batch(rows: int) -> dict[str, Array]:
    x = np.arange(15 * rows, dtype=np.float32).reshape(5, rows, 3)
    return {"x": x, "y": np.arange(rows), "scale": np.ones(())}


@pytest.mark.parametrize(("rows", "parts", "counts"), [(7, 3, [3, 2, 2]), (2, 4, [1, 1]), (5, 1, [5])])
def test_rows_are_divided_evenly(rows: int, parts: int, counts: list[int]) -> None:
    feeds = batch(rows)
    shards = rowwise().divide(feeds, parts)
    assert [shard.count for shard in shards] == counts
    assert [len(shard.feeds["y"]) for shard in shards] == counts
    np.testing.assert_array_equal(np.concatenate([shard.feeds["x"] for shard in shards], 1), feeds["x"])
    assert all(shard.feeds["scale"].shape == () for shard in shards)


@pytest.mark.parametrize("rows", [0, 3])
def test_batches_without_rows_or_of_two_lengths_are_refused(rows: int) -> None:
    feeds = batch(rows) | {"y": np.arange(rows and 4)}
    with pytest.raises(InvalidInputError, match="as many rows in every input, at least 1"):
        rowwise().divide(feeds, 2)


def test_a_model_of_one_batch_size_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"leaves the number of rows open, got 'x' float32\[4, 3\]"):
        Rowwise(Layout([declared(4, 3)]), {})


def test_outputs_are_put_together() -> None:
    rows = rowwise()
    joined = rows.joined("rows", [np.ones((3, 2)), np.zeros((2, 2))], [3, 2])
    assert joined.shape == (5, 2)
    assert rows.joined("turned", [np.ones((3, 3)), np.ones((3, 2))], [3, 2]).shape == (3, 5)
    mean = rows.joined("accuracy", [np.float32(1.0), np.float32(0.5)], [3, 1])
    assert mean == np.float32(0.875)
    assert mean.dtype == np.float32
    assert rows.joined("norms", [np.ones(4)], [3]).shape == (4,)


@pytest.mark.parametrize("name", ["count", "norms"])
def test_other_outputs_are_refused(name: str) -> None:
    part = np.zeros(4 if name == "norms" else (), np.float32 if name == "norms" else np.int64)
    with pytest.raises(InvalidInputError, match=f"'{name}' requires rows or a floating-point number"):
        rowwise().joined(name, [part, part], [3, 2])


LOSSES = {
    "mean": lambda y: y.mean(),
    "sum": lambda y: y.sum(),
    "norm": lambda y: np.sqrt((y * y).sum()),
    # A mean over what is not masked, of which rows have more or less.
    "masked": lambda y: y.sum() / (y % 2 + 1).sum(),
}


def losses(kind: str) -> Any:
    return lambda feeds: np.asarray(LOSSES[kind](feeds["y"].astype(np.float32) + 1), np.float32)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["mean", "sum"])
def test_the_reduction_is_found(kind: str) -> None:
    assert reduction_of(losses(kind), rowwise(), batch(6)) == kind


@pytest.mark.parametrize("kind", ["norm", "masked"])
def test_other_reductions_are_refused(kind: str) -> None:
    with pytest.raises(InvalidInputError, match="mean or the sum over rows"):
        reduction_of(losses(kind), rowwise(), batch(6))


def test_a_loss_that_tells_nothing_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="reduction='mean'"):
        reduction_of(lambda _: np.asarray(0.0), rowwise(), batch(6))
