"""Gradients of random programs, loops and branches among them, against central differences."""

from __future__ import annotations

import pytest

from tests.support.fuzz.work import gradients

# Seeds whose programs are small and have derivatives; those of one in three are differentiated twice.
SEEDS = [1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 17, 22, 24]


@pytest.mark.parametrize("seed", SEEDS)
def test_right(seed: int) -> None:
    assert gradients(seed, {}, [], lambda _: None)["verdict"] == "right"
