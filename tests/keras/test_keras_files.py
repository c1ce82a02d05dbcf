"""Paths in the place of models: the framework that wrote a file loads it, and the step trains as there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

X, Y = np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32), np.ones((4, 1), np.float32)


def model(framework: Any, *more: Any) -> Any:
    layers = framework.layers
    made = framework.Sequential([layers.Input((5, 3)), *more, layers.LSTM(4), layers.Dense(1)])
    made.compile("adam", framework.losses.MeanSquaredError())
    made.train_on_batch(X, Y)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "name"),
    [(keras, "m.keras"), (keras, "m.h5"), (tf_keras, "m.keras"), (tf_keras, "m.h5"), (tf_keras, "saved")],
)
def test_a_file_trains_as_the_model_that_was_saved(framework: Any, name: str, tmp_path: Path) -> None:
    theirs = model(framework)
    theirs.save(tmp_path / name)
    trainer = ll.Trainer(ll.from_keras(tmp_path / name))
    for _ in range(3):
        loss = float(np.ravel(theirs.train_on_batch(X, Y))[0])
        if framework is keras:
            theirs.reset_metrics()
        assert trainer.step({"x": X, "y": Y}).loss == pytest.approx(loss, rel=1e-4)


def test_files_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for framework in (keras, tf_keras):
        doubled = model(framework, framework.layers.Lambda(lambda x: 2 * x))
        for path in (tmp_path / "m.keras", tmp_path / "m.h5"):
            doubled.save(path)
            with pytest.raises(ll.InvalidInputError, match="without Python code"):
                ll.from_keras(path)
    doubled.save(tmp_path / "saved")
    with pytest.raises(ll.InvalidInputError, match="without Python code"):
        ll.from_keras(tmp_path / "saved")
    (tmp_path / "saved" / "keras_metadata.pb").unlink()
    with pytest.raises(ll.InvalidInputError, match=r"without keras_metadata.pb; ll.from_tensorflow takes any"):
        ll.from_keras(tmp_path / "saved")
    plain = model(tf_keras)
    plain.save_weights(tmp_path / "w.h5")
    with pytest.raises(ll.InvalidInputError, match="got weights alone: build the model"):
        ll.from_keras(tmp_path / "w.h5")
    (tmp_path / "other").write_text("no model")
    with pytest.raises(ll.InvalidInputError, match="a file of a Keras model is required"):
        ll.from_keras(tmp_path / "other")
    with pytest.raises(ll.InvalidInputError, match="got no such file"):
        ll.from_keras(tmp_path / "none.keras")
    plain.save(tmp_path / "m.h5")
    own = importlib.import_module

    def without(name: str, *args: Any) -> Any:
        if name == "tf_keras":
            raise ModuleNotFoundError(name=name)
        return own(name, *args)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=r"which Keras 2 wrote, requires tf_keras, .*pip install tf-keras"):
        ll.from_keras(tmp_path / "m.h5")


@pytest.mark.slow
def test_what_a_file_was_compiled_with_may_be_given_anew(tmp_path: Path) -> None:
    """Keras 3 cannot read the names of losses in the `.h5` files that it wrote itself."""
    theirs = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    theirs.compile("adam", "mse")
    theirs.save(tmp_path / "m.h5")
    with pytest.warns(ll.errors.LstmLowerWarning, match="loads the model without what it was compiled with"):
        step = ll.from_keras(tmp_path / "m.h5", "mse", "adam")
    assert ll.Trainer(step).inputs == ["x", "y"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\nrubbish")
    with pytest.raises(ll.InvalidInputError, match=r"m\.h5: a file of a Keras model .* damaged"):
        ll.from_keras(path)
