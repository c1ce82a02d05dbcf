"""Training steps with loops and branches that TensorFlow recorded; nothing of it is needed here."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.tensorflow.loops.checks import WAYS, Way, check, loops

pytest.importorskip("tensorboard")

FOLDER = Path(__file__).parents[2] / "data" / "tensorflow_loops"
RECORDED = sorted(FOLDER.glob("*.npz"))


def unpacked(recorded: Path, folder: Path) -> Path:
    """The `.meta` file of a recorded graph, with its checkpoint and what was recorded beside it."""
    with np.load(recorded) as held:
        for key in held.files:
            if key.startswith("file/"):
                (folder / key.removeprefix("file/")).write_bytes(held[key].tobytes())
    shutil.copy(recorded, folder)
    return folder / f"{recorded.stem}.meta"


# Two graphs in all ways, others in one each.
CASES = [(path, way) for path in RECORDED[::8] for way in WAYS]
CASES += [(path, WAYS[i % len(WAYS)]) for i, path in enumerate(RECORDED) if i % 8]


@pytest.mark.slow
@pytest.mark.parametrize(("recorded", "way"), CASES, ids=[f"{path.stem}-{WAYS.index(way)}" for path, way in CASES])
def test_three_steps(recorded: Path, way: Way, tmp_path: Path) -> None:
    check(unpacked(recorded, tmp_path), way)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_a_decoder_stays_a_loop(kind: str, tmp_path: Path) -> None:
    (recorded,) = FOLDER.glob(f"{kind}-decoder-*.npz")
    assert loops(check(unpacked(recorded, tmp_path)))["Loop"]


def test_there_are_records() -> None:
    assert len(RECORDED) >= 12
    assert max(path.stat().st_size for path in RECORDED) < 25_000
