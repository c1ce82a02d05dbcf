"""Steps of these tests are compared with Keras by the tests themselves, so that `from_keras` need not do it again."""

from __future__ import annotations

import contextlib
import functools

import pytest

import lstm_lower as ll


@pytest.fixture(autouse=True)
def _unchecked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.stem == "test_certificate":
        return
    with contextlib.suppress(ll.InvalidInputError):  # without TensorFlow these tests are skipped
        monkeypatch.setattr(ll, "from_keras", functools.partial(ll.from_keras, check=False))
