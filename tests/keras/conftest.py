"""Steps of these tests are compared with Keras by the tests themselves, so that `from_keras` need not do it again."""

from __future__ import annotations

import functools

import pytest

import lstm_lower as ll


@pytest.fixture(autouse=True)
def _unchecked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "certified" not in request.keywords and hasattr(ll, "from_keras"):
        monkeypatch.setattr(ll, "from_keras", functools.partial(ll.from_keras, check=False))
