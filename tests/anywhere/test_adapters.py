"""Adapters go from each runtime to each: Python, JavaScript and C++ write and read the same file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import safetensors.numpy

import lstm_lower as ll
from tests.anywhere.support import compiled, node
from tests.support import bundles

HERE = Path(__file__).parent
DATA = bundles.batch(7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle with a frozen base, data, and the adapter of a trainer that has done five steps."""
    ll.export_training(bundles.frozen(), tmp_path / "bundle")
    np.savez(tmp_path / "data.npz", **DATA)
    ll.export_adapter(tmp_path / "bundle", trained(5), tmp_path / "python.safetensors")
    return tmp_path


def trained(steps: int) -> ll.Trainer:
    """A trainer after some steps on the same batch."""
    trainer = ll.Trainer(bundles.frozen())
    for _ in range(steps):
        trainer.step(DATA)
    return trainer


def test_javascript(folder: Path) -> None:
    words = [folder / name for name in ("bundle", "data.npz", "python.safetensors", "node.safetensors")]
    command = [node(), str(HERE / "adapters.mjs"), *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["bytes"] < 1000
    assert told["before"] != told["trained"]
    assert told["after"] == told["mean"] == told["same"] == told["trained"]
    assert told["accepted"] == []
    starts = {
        "none": "adapter",
        "checkpoint": "adapter",
        "more": "an adapter requires",
        "nothing": "an adapter requires",
    }
    assert set(told["told"]) == set(starts)
    assert all(message.startswith("InvalidInputError: ") for message in told["told"].values())
    own = trained(5).predict({"x": DATA["x"]})["logits"]
    np.testing.assert_allclose(np.reshape(told["pythons"], own.shape), own, rtol=1e-5, atol=1e-5)
    merged = ll.merge(folder / "bundle", folder / "node.safetensors").SerializeToString()
    (result,) = ort.InferenceSession(merged).run(None, {"x": DATA["x"]})
    np.testing.assert_allclose(result, np.reshape(told["trained"], own.shape), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_cpp(folder: Path) -> None:
    program = compiled(folder, HERE / "adapter.cpp")
    for name, array in DATA.items():
        np.save(folder / f"{name}.npy", array)
    words = [str(program), "bundle", str(folder), "python.safetensors", "cpp.safetensors"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    ll.merge(folder / "bundle", folder / "cpp.safetensors")
    # The optimizer begins anew there, as in a trainer that gets the weights alone.
    again = ll.Trainer(bundles.frozen())
    again.load_state_dict(safetensors.numpy.load_file(folder / "python.safetensors"), strict=False)
    again.step(DATA)
    written = safetensors.numpy.load_file(folder / "cpp.safetensors")
    np.testing.assert_allclose(written["v"], again.state_dict()["v"], rtol=1e-5, atol=1e-6)
