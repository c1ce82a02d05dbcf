"""Metrics that count on from batch to batch, elsewhere: Keras' own objects, validated and evaluated as in Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from tests.anywhere.support import compiled, node

keras = pytest.importorskip("keras", reason="Keras is not installed")

HERE = Path(__file__).parent


def _step() -> Any:
    keras.utils.set_random_seed(0)
    x = keras.Input((6,), name="x")
    model = keras.Model(x, keras.layers.Dense(1, activation="sigmoid", name="y")(x))
    metrics = ["accuracy", keras.metrics.AUC(name="auc"), keras.metrics.Precision(name="precision")]
    model.compile("adam", "binary_crossentropy", metrics=metrics)
    return ll.from_keras(model)


PROGRAMS: dict[str, Callable[[Path], list[object]]] = {
    "JavaScript": lambda _: [node(), HERE / "scores.mjs"],
    "C++": lambda folder: [compiled(folder, HERE / "scores.cpp")],
}


@pytest.mark.parametrize("language", PROGRAMS)
def test_counting_metrics(language: str, tmp_path: Path) -> None:
    words = PROGRAMS[language](tmp_path)
    step = _step()
    ll.export_training(step, tmp_path / "bundle")
    random = np.random.default_rng(0)
    x = random.standard_normal((50, 6), np.float32)
    held = {"x": x, "y": (x.sum(1, keepdims=True) > 0).astype(np.float32)}
    for name, array in held.items():
        np.save(tmp_path / f"{name}.npy", array)
    command = [*map(str, words), "bundle", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True)
    told = json.loads(done.stdout)
    trainer = ll.Trainer(step)
    history = trainer.fit(held, epochs=2, batch_size=8, shuffle=False, validation=held)
    scores = trainer.evaluate(held, batch_size=7)
    assert set(scores) == {"loss", "accuracy", "auc", "precision"}
    for ours, python in zip([*told["epochs"], told["scores"]], [*history.epochs, scores], strict=True):
        assert ours == pytest.approx(python, rel=1e-5)
