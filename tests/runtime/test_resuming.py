"""What a run that goes on is told: that its last bits may differ, and why; that its data are others."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import safetensors.numpy

import lstm_lower as ll
from lstm_lower.errors import LstmLowerWarning
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.data.opening import open_data
from lstm_lower.runtime.training.data.table import Padding
from tests.runtime.test_data import SEQUENCES, with_lengths
from tests.support.training_models import quadratic

PADDING = Padding({"x": 0.0}, {"x_length": "x"})
ROWS = np.random.default_rng(0).random((8, 3)).astype(np.float32)


def trainer(**options: Any) -> ll.Trainer:
    return ll.Trainer(quadratic(), optimizer="sgd", learning_rate=0.1, **options)


def test_a_warning_names_what_the_last_bits_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.safetensors"
    trainer().save(path)
    trainer().resume(path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 7
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    with monkeypatch.context() as patch:
        patch.setattr(ort, "__version__", "1.99")
        with pytest.warns(LstmLowerWarning) as told:
            trainer(session_options=options).resume(path)
    (warning,) = told
    for what in (f"onnxruntime ({ort.__version__} then, 1.99 now)", "then, 7 now)", "numbers (kept then, zero now)"):
        assert what in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize("recorded", [None, 3, {}, {"onnxruntime": 1, "phase": "full"}], ids=str)
def test_checkpoints_that_record_nothing_or_other_things(recorded: Any, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    made = trainer()
    made.save(path)
    notes = {**checkpoint.read(path)[1], "arithmetic": recorded}
    safetensors.numpy.save_file(made.state_dict(), path, {checkpoint.FORMAT: json.dumps(notes)})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trainer().resume(path)
    assert len(told) == (recorded == {"onnxruntime": 1, "phase": "full"})


@pytest.mark.parametrize("validation", [False, True], ids=["data", "validation"])
def test_other_data_of_the_same_size(validation: bool, tmp_path: Path) -> None:
    other = ROWS.copy()
    other[5, 1] += 1
    first = {"data": {"x": ROWS}, "validation": {"x": ROWS}}
    options: dict[str, Any] = {"batch_size": 2, "folder": tmp_path}
    trainer().fit(**first, epochs=1, **options)
    trainer().fit(**first, epochs=2, **options)
    name = "validation" if validation else "data"
    with pytest.warns(LstmLowerWarning, match=f"requires the same {name} as before"):
        trainer().fit(**{**first, name: {"x": other}}, epochs=3, **options)


@pytest.mark.parametrize("form", ["small", "large", "mapped", "files", "sequences"])
def test_fingerprints_tell_data_apart(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if form in ("large", "mapped"):
        monkeypatch.setattr("lstm_lower.runtime.training.data.table._SEEN_WHOLE", 0)

    def source(change: float, where: str) -> Any:
        rows = ROWS.copy()
        rows[3] += change
        if form == "sequences":
            sequences = [*SEQUENCES[:-1], SEQUENCES[-1] + np.float32(change)]
            columns = {"x": sequences, "x_length": None, "y": np.arange(len(sequences))}
            return open_data(columns, with_lengths(), PADDING)
        given: Any = {"x": rows}
        if form in ("mapped", "files"):
            given = tmp_path / where
            given.mkdir(exist_ok=True)
            if form == "mapped":
                np.save(given / "x.npy", rows)
            else:
                np.savez(given / "1.npz", x=rows[:4])
                np.savez(given / "2.npz", x=rows[4:])
        return open_data(given, Layout(trainer().data_inputs))

    same, again, other = (source(change, where).fingerprint() for change, where in ((0, "a"), (0, "b"), (1, "c")))
    assert same == again != other
    assert open_data([{"x": ROWS}], Layout(trainer().data_inputs)).fingerprint() is None
