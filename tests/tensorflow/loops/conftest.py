"""What the tests of loops share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tensorflow.loops.checks import Maker


@pytest.fixture(scope="session")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    """For all graphs, since TensorFlow takes seconds to start."""
    with Maker(tmp_path_factory.mktemp("graphs")) as made:
        yield made
