"""What the tests of loops share."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tensorflow.loops.checks import Maker


@pytest.fixture(scope="session")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    """For all graphs, since TensorFlow takes seconds to start."""
    with Maker(tmp_path_factory.mktemp("graphs")) as made:
        yield made


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the graphs that TensorFlow made once."""
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(Path(__file__).parents[2] / "data" / "tensorflow_loops" / "graphs.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return folder
