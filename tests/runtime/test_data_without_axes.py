"""Inputs without axes, such as a switch or a rate, beside data: one number for all samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.data.opening import open_data
from lstm_lower.runtime.training.data.source import Order
from tests.runtime.test_data import ROWS, arrays, as_npy, declared, parts

LAYOUT = Layout(
    [declared("x:0", "float", "time", "batch", 2), declared("keep", "float"), declared("y", "int64", "batch")]
)


def saved_with(folder: Path, form: str, keep: Any) -> Any:
    """The samples, with `keep` for each shard or for all."""
    data, first = arrays(), keep[0]
    if form == "arrays":
        return {**data, "keep": first}
    if form == "npz":
        np.savez(folder / "data.npz", **data, keep=np.float32(first))
        return folder / "data.npz"
    if form == "npy":
        np.save(folder / "keep.npy", np.float32(first))
        return as_npy(folder)
    for number, (part, each) in enumerate(zip(parts(data), keep, strict=True)):
        np.savez(folder / f"part-{number}.npz", **part, keep=np.float32(each))
    return folder


@pytest.mark.parametrize("form", ["arrays", "npz", "npy", "shards"])
def test_an_input_without_axes_has_one_number_for_all_samples(form: str, tmp_path: Path) -> None:
    source = open_data(saved_with(tmp_path, form, [0.5] * 4), LAYOUT)
    assert source.count == ROWS
    batches = list(source.epoch(Order(batch_size=5, seed=3), 0))
    assert {(batch["keep"].item(), batch["keep"].dtype, batch["keep"].shape) for batch in batches} == {
        (0.5, np.dtype(np.float32), ())
    }
    np.testing.assert_array_equal(np.sort(np.concatenate([batch["y"] for batch in batches])), np.arange(ROWS))
    for batch in batches:
        np.testing.assert_array_equal(batch["x:0"][1, :, 1], batch["y"])


def test_shards_that_do_not_agree_on_it(tmp_path: Path) -> None:
    source = open_data(saved_with(tmp_path, "shards", [0.5, 0.5, 0.25, 0.5]), LAYOUT)
    with pytest.raises(InvalidInputError, match=r"data 'keep' requires one number for all samples, got 0\.25 and 0\.5"):
        list(source.epoch(Order(batch_size=4, shuffle=False), 0))


def test_a_number_for_each_sample_is_refused() -> None:
    message = r"data 'keep' requires rank 0, float32\[\], one number for all samples .*, got \[23\]"
    with pytest.raises(InvalidInputError, match=message):
        open_data({**arrays(), "keep": np.ones(ROWS, np.float32)}, LAYOUT)
