"""Training steps with TensorFlow 1's recurrent models, made on the spot: three steps as TensorFlow takes them."""

from __future__ import annotations

import pytest

from tests.tensorflow.loops.checks import WAYS, Maker, check, loops, needs_tensorflow
from tests.tensorflow.loops.grid import PART

pytestmark = needs_tensorflow


@pytest.mark.parametrize(("number", "name"), [*enumerate(PART)], ids=PART)
def test_three_steps(maker: Maker, number: int, name: str) -> None:
    lowered = check(maker.graph(name), WAYS[number % len(WAYS)])
    if "/decoder/" in name:
        # How many steps there are follows from the data.
        assert loops(lowered)["Loop"]
