"""Gradients of random programs, loops and branches among them, against central differences."""

from __future__ import annotations

import pytest

from tests.support.fuzz.programs import program
from tests.support.fuzz.runs import run
from tests.support.node_gradients import outcome_of

# Seeds whose programs are small and have derivatives.
SEEDS = [0, 4, 5, 9, 15, 16, 18, 22, 31, 32]


@pytest.mark.parametrize("seed", SEEDS)
def test_right(seed: int) -> None:
    made = program(seed)
    feeds = made.feeds[0]
    inputs = [feeds[value.name] for value in made.model.graph.input]
    found = outcome_of(f"program {seed}", made.model, inputs, run(made.model, feeds))
    assert found.kind == "right", found.reason
