"""A head whose class count is open until a bundle is loaded: in Node, in Chromium and in C++ as in Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import lstm_lower as ll
from tests.anywhere.support import ROOT, chromium, compiled, node, served
from tests.onnx.test_open_class_count import FEEDS, FIVE, step

HERE = Path(__file__).parent
STEPS = 5


def _bundle(folder: Path) -> ll.Trainer:
    """A bundle and data in a folder; a trainer of the step that has done the same in Python."""
    ll.export_training(step(), folder / "bundle")
    np.savez(folder / "data.npz", **FEEDS)
    for name, array in FEEDS.items():
        np.save(folder / f"{name}.npy", array)
    return ll.Trainer(step(), sizes=FIVE)


def _told(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _check_model(folder: Path, trainer: ll.Trainer) -> None:
    """What was written predicts what the trainer does: the model, and an adapter in the bundle."""
    expected = trainer.predict({"x": FEEDS["x"]})["y"]
    merged = ll.merge(folder / "bundle", folder / "adapter.safetensors").SerializeToString()
    for model in (merged, (folder / "trained.onnx").read_bytes()):
        (got,) = ort.InferenceSession(model).run(None, {"x": FEEDS["x"]})
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("place", ["node", pytest.param("chromium", marks=pytest.mark.slow)])
def test_javascript(place: str, tmp_path: Path) -> None:
    trainer = _bundle(tmp_path)
    command = [node(), str(HERE / "open_sizes.mjs"), "bundle", "data.npz"]
    if place == "node":
        told: dict[str, Any] = json.loads(_told(command, tmp_path))
    else:
        (tmp_path / "site").mkdir()
        with served(tmp_path / "bundle", tmp_path / "site") as url:
            told = json.loads(_told([*command, str(ROOT), chromium(), url], tmp_path))
    assert [message.partition(",")[0] for message in told["told"]] == [
        *["InvalidInputError: the state requires a number for its open size 'classes'"] * 2,
        "InvalidInputError: sizes requires names of the state's open sizes",
        *["InvalidInputError: sizes['classes'] requires a whole number"] * 2,
        "InvalidInputError: state 'head.weight' requires shape [8",
    ]
    untrained = trainer.predict({"x": FEEDS["x"]})["y"]
    np.testing.assert_allclose(np.reshape(told["untrained"], (6, 5)), untrained, rtol=1e-5, atol=1e-5)
    losses = [trainer.step(FEEDS).loss for _ in range(STEPS)]
    np.testing.assert_allclose(told["losses"], losses, rtol=1e-5)
    np.testing.assert_allclose(told["loss"], trainer.evaluate(FEEDS)["loss"], rtol=1e-5)
    assert told["next"][0] == told["next"][1]
    _check_model(tmp_path, trainer)


@pytest.mark.slow
def test_cpp(tmp_path: Path) -> None:
    trainer = _bundle(tmp_path)
    program = compiled(tmp_path, HERE / "open_sizes.cpp")
    words = [str(program), "bundle", str(tmp_path), "adapter.safetensors", "trained.onnx"]
    losses = [trainer.step(FEEDS).loss for _ in range(STEPS)]
    np.testing.assert_allclose(np.array(_told(words, tmp_path).split(), float), losses, rtol=1e-5)
    _check_model(tmp_path, trainer)


@pytest.mark.slow
def test_the_page(tmp_path: Path) -> None:
    """The address says how many classes there are; the model that it saves has that many."""
    trainer = _bundle(tmp_path)
    (tmp_path / "site").mkdir()
    with served(tmp_path / "bundle", tmp_path / "site") as url:
        options = {
            "packages": str(ROOT), "chromium": chromium(), "url": f"{url}?size=classes=5", "steps": STEPS, "size": 6,
            "data": str(tmp_path / "data.npz"), "names": ["predict.onnx"], "folder": str(tmp_path), "pictures": [],
        }  # fmt: skip
        told = json.loads(_told([node(), str(HERE / "drive.mjs"), json.dumps(options)], tmp_path))
    assert told["wrong"] == []
    losses = [trainer.step(FEEDS).loss for _ in range(STEPS)]
    np.testing.assert_allclose(told["losses"], losses, rtol=1e-5)
    (got,) = ort.InferenceSession(tmp_path / "predict.onnx").run(None, {"x": FEEDS["x"]})
    np.testing.assert_allclose(got, trainer.predict({"x": FEEDS["x"]})["y"], rtol=1e-5, atol=1e-5)
