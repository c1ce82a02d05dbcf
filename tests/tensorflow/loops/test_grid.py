"""Training steps with TensorFlow 1's recurrent models: three steps as TensorFlow takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tensorflow.loops.checks import WAYS, Maker, check, loops, meta_of, needs_tensorflow
from tests.tensorflow.loops.grid import MADE_ON_THE_SPOT, PART

pytest.importorskip("tensorboard")

NUMBERED = [pytest.param(number, name, id=name) for number, name in enumerate(PART)]


def check_steps(meta: Path, number: int, name: str) -> None:
    lowered = check(meta, WAYS[number % len(WAYS)])
    if "/decoder/" in name:
        # How many steps there are follows from the data.
        assert loops(lowered)["Loop"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), [part for part in NUMBERED if part.id not in MADE_ON_THE_SPOT])
def test_three_steps_recorded(recorded: Path, number: int, name: str) -> None:
    check_steps(meta_of(recorded, name), number, name)


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.parametrize(("number", "name"), [part for part in NUMBERED if part.id in MADE_ON_THE_SPOT])
def test_three_steps(maker: Maker, number: int, name: str) -> None:
    check_steps(maker.graph(name), number, name)
