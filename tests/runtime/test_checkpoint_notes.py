"""Checkpoints whose notes are odd: nothing of the trainer is changed."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import safetensors.numpy

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training import checkpoint
from tests.support.training_models import char_lstm

GOOD = {"steps": 7, "learning_rate": 0.5, "notes": {}}
ODD = [
    "{",
    "[]",
    "null",
    "[" * 10**5,
    "{}",
    json.dumps({**GOOD, "steps": -1}),
    json.dumps({**GOOD, "steps": 1.5}),
    json.dumps({**GOOD, "steps": True}),
    json.dumps({**GOOD, "steps": "7"}),
    json.dumps({**GOOD, "learning_rate": None}),
    json.dumps({**GOOD, "learning_rate": "fast"}),
    json.dumps({**GOOD, "learning_rate": float("nan")}),
    '{"steps": 7, "learning_rate": 1e999, "notes": {}}',
    json.dumps({**GOOD, "notes": None}),
    json.dumps({**GOOD, "notes": [1]}),
    json.dumps({"steps": 7, "notes": {}}),
]


@functools.cache
def lowered() -> onnx.ModelProto:
    """The character model, lowered once for all trainers."""
    return ll.lower(ir.to_proto(char_lstm()[0]))


@pytest.mark.slow
@pytest.mark.parametrize("text", ODD)
def test_odd_notes_change_nothing(tmp_path: Path, text: str) -> None:
    trainer = ll.Trainer(lowered())
    path = tmp_path / "checkpoint.safetensors"
    other = {name: array + 1 for name, array in trainer.state_dict().items()}
    safetensors.numpy.save_file(other, path, {checkpoint.FORMAT: text})
    before, rate = trainer.state_dict(), trainer.learning_rate
    with pytest.raises(InvalidInputError, match=r"checkpoint\.safetensors"):
        trainer.resume(path)
    assert (trainer.steps, trainer.learning_rate) == (0, rate)
    for name, array in trainer.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"x", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0{}", b"\xff\xff\xff\xff\0\0\0\0{}"])
def test_bytes_that_are_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"checkpoint\.safetensors"):
        ll.Trainer(lowered()).resume(path)


@pytest.mark.parametrize("rate", ["fast", None, float("nan"), float("inf"), [1, 2]])
def test_a_learning_rate_is_a_number(rate: object) -> None:
    model, data = char_lstm()
    trainer = ll.Trainer(model)
    with pytest.raises(InvalidInputError, match="learning_rate requires a"):
        trainer.learning_rate = rate  # type: ignore[assignment]
    with pytest.raises(InvalidInputError, match="learning_rate requires a"):
        trainer.step({**data, "learning_rate:0": rate})
    assert trainer.steps == 0
