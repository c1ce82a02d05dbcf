"""Loops and branches in all forms that TensorFlow makes of them: three training steps as TensorFlow takes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tensorflow.loops.checks import TOLERANCE, WAYS, Maker, check, needs_tensorflow
from tests.tensorflow.loops.grid import KNOWN_FAULTS, SOME_FORMS

pytestmark = needs_tensorflow


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    with Maker(tmp_path_factory.mktemp("graphs")) as made:
        yield made


CASES = [
    pytest.param(number, name, marks=pytest.mark.xfail(name in KNOWN_FAULTS, reason="see KNOWN_FAULTS"), id=name)
    for number, name in enumerate(SOME_FORMS)
]


@pytest.mark.parametrize(("number", "name"), CASES)
def test_three_steps(maker: Maker, number: int, name: str) -> None:
    check(maker.graph(name), WAYS[number % len(WAYS)], 2e-3 if "float16" in name else TOLERANCE)
