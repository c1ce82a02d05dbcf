"""Sessions and trainers in other processes, and copied: by model and state, or refused by name."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.parallel.trainer import DistributedTrainer

DIGITS = Path("examples/onnx_saliency/digits.onnx")
RNG = np.random.default_rng(0)
BATCH = {"image": RNG.random((8, 1, 8, 8), np.float32), "target": np.arange(8) % 10}
WAYS = [copy.deepcopy, lambda kept: pickle.loads(pickle.dumps(kept))]


@pytest.mark.parametrize("sent", WAYS, ids=["copied", "pickled"])
def test_a_trainer_goes_on_where_it_was(sent: Callable[[Any], Any]) -> None:
    step = ll.from_onnx(DIGITS, "cross_entropy", "adam")
    trainer = ll.Trainer(step, ["cpu"], learning_rate=0.01, clip_norm=1.0, accumulate=2, on_nan="skip")
    trainer.trace_nan = True
    for _ in range(3):
        trainer.step(BATCH)
    trainer.learning_rate = 0.02
    again = sent(trainer)
    assert (again.steps, again.learning_rate, again.on_nan, again.trace_nan) == (3, 0.02, "skip", True)
    for _ in range(3):
        assert trainer.step(BATCH).loss == again.step(BATCH).loss
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], value)
    assert trainer.evaluate(BATCH) == again.evaluate(BATCH)


@pytest.mark.parametrize("sent", WAYS, ids=["copied", "pickled"])
def test_a_session_of_a_file_takes_it_along(sent: Callable[[Any], Any], tmp_path: Path) -> None:
    path = tmp_path / "digits.onnx"
    onnx.save(onnx.load(DIGITS), path, save_as_external_data=True, location="digits.data", size_threshold=0)
    session = ll.Session(path, ["cpu"])
    again = sent(session)
    image = {"image": BATCH["image"]}
    for name, value in session.run(image).items():
        np.testing.assert_array_equal(again.run(image)[name], value)
    data = tmp_path / "digits.data"
    data.write_bytes(data.read_bytes())
    with pytest.raises(InvalidInputError, match=r"digits.onnx, which has changed since; send the model, and open it"):
        sent(session)


def test_what_cannot_be_sent_says_what_can() -> None:
    with pytest.raises(InvalidInputError, match=r"got a model in memory; send the model, and open it there"):
        pickle.dumps(ll.Session(onnx.load(DIGITS)))
    options = ort.SessionOptions()
    with pytest.raises(InvalidInputError, match=r"a session that is sent .* requires session_options=None"):
        copy.copy(ll.Session(DIGITS, session_options=options))
    step = ll.from_onnx(DIGITS, "cross_entropy", "sgd")
    with pytest.raises(InvalidInputError, match=r"a trainer that is sent .* requires session_options=None"):
        pickle.dumps(ll.Trainer(step, session_options=options))
    with pytest.raises(InvalidInputError, match=r"send its `sync\(\)`"):
        pickle.dumps(DistributedTrainer.__new__(DistributedTrainer))
