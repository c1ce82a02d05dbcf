"""A small part of what `python -m tests.fuzz tensorflow` does: random programs next to TensorFlow."""

from __future__ import annotations

import dataclasses

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tf_keras")  # has TensorFlow 1's cells
pytestmark = pytest.mark.filterwarnings("ignore")

from tests.support.fuzz.tf_programs import judging  # noqa: E402
from tests.support.fuzz.tf_programs.judging import Finding, judged, judged_keras  # noqa: E402
from tests.support.fuzz.tf_programs.programs import program  # noqa: E402
from tests.support.fuzz.tf_programs.reducing import reduced  # noqa: E402

PROGRAMS = (0, 1, 2, 4, 5, 6, 7, 8, 13, 14)
# Take little time each.
QUICK = (1, 4, 5, 6, 7, 13)


@pytest.mark.parametrize("seed", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS])
def test_a_random_program_is_what_it_is_in_tensorflow(seed: int) -> None:
    assert judged(program(seed)) == Finding("passed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3])
def test_a_random_model_of_keras_learns_the_same(seed: int) -> None:
    assert judged_keras(seed) == Finding("passed")


def test_a_seed_always_gives_the_same_program() -> None:
    assert program(3).describe() == program(3).describe()


@pytest.mark.slow
def test_a_wrong_import_is_found_and_its_program_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes every result for twice what it is."""

    def run(*operands: object) -> judging.Outcome:
        found = original(*operands)  # type: ignore[arg-type]
        doubled = [{name: value * 2 for name, value in results.items()} for results in found.results]
        return dataclasses.replace(found, results=doubled)

    original = judging.run
    monkeypatch.setattr(judging, "run", run)
    found = judged(program(2))
    assert found.failed
    small = reduced(program(2), found, judged, seconds=20)
    assert not small.steps
