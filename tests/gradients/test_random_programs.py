"""Gradients of random programs, loops and branches among them, against central differences."""

from __future__ import annotations

import pytest

from tests.support.fuzz.work import gradients

# Seeds whose programs are small and have derivatives; those of one in three are differentiated twice.
SEEDS = [4, 7, 8, 13, 19, 20, 22, 30, 35, 37, 46, 50, 52, 55, 56, 57]


@pytest.mark.parametrize("seed", SEEDS)
def test_right(seed: int) -> None:
    assert gradients(seed, {}, [], lambda _: None)["verdict"] == "right"
