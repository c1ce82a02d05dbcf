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
        if request.path.stem == "test_layers":
            # What evaluates a step is a second trace of the model, which these tests do not read.
            from lstm_lower.keras.evaluation import Evaluation

            monkeypatch.setattr(Evaluation, "record", lambda *_: None)
