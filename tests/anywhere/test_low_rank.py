"""Low-rank matrices beside a frozen base of floats, of 8 and of 4 bits: trained in Python, in Node and in Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import lstm_lower as ll
from tests.anywhere.support import ROOT, chromium, node, served
from tests.support.quantized_models import data, quantized

STEPS, COUNT = 20, 8
KINDS, FORMS = ("transformer", "crnn", "lstm"), ("float", "dynamic", "int4")
NAMES = {f"{kind}_{form}": (kind, form) for kind in KINDS for form in FORMS}
HERE = Path(__file__).parent


def _feeds(kind: str) -> dict[str, Any]:
    return {"x": data(kind, COUNT), "target": np.arange(COUNT) % 3}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, onnx.ModelProto]:
    """The models without matrices."""
    folder = tmp_path_factory.mktemp("bases")
    return {name: quantized(kind, form, folder) for name, (kind, form) in NAMES.items()}


@pytest.fixture(scope="module")
def folder(bases: dict[str, onnx.ModelProto], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles by name, and what they are trained on."""
    made, cases = tmp_path_factory.mktemp("low_rank"), {}
    for name, model in bases.items():
        ll.export_training(_step(model), made / name)
        feeds = _feeds(name)
        x = {"shape": list(feeds["x"].shape), "data": feeds["x"].ravel().tolist()}
        cases[name] = {"x": x, "target": feeds["target"].tolist()}
    (made / "cases.json").write_text(json.dumps(cases))
    return made


def _step(model: onnx.ModelProto) -> onnx.ModelProto:
    return ll.from_onnx(ll.lora(model, rank=2, alpha=4), "cross_entropy", "adam")


def _feeds(name: str) -> dict[str, Any]:
    return {"x": data(NAMES[name][0], COUNT), "target": np.arange(COUNT) % 3}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["node", "chromium"])
def test_losses_are_pythons(place: str, bases: dict[str, onnx.ModelProto], folder: Path, tmp_path: Path) -> None:
    """And the base stays bit for bit: without the matrices the trained model is the one before."""
    shutil.copytree(folder, tmp_path / "site")
    script = [node(), str(HERE / "low_rank.mjs"), str(STEPS)]
    if place == "node":
        told = _told(script, tmp_path / "site")
    else:
        with served(folder / next(iter(NAMES)), tmp_path / "site") as url:
            told = _told([*script, str(ROOT), chromium(), url], tmp_path / "site")
    for name, model in bases.items():
        trainer = ll.Trainer(_step(model))
        expected = [trainer.step(_feeds(name)).loss for _ in range(STEPS)]
        np.testing.assert_allclose(told[name], expected, rtol=1e-5, err_msg=name)
        assert expected[-1] < expected[0]
        merged = ll.merge(folder / name, tmp_path / "site" / f"{name}.safetensors")
        feeds = {"x": data(NAMES[name][0], COUNT)}
        (trained,) = ort.InferenceSession(merged.SerializeToString()).run(None, feeds)
        np.testing.assert_allclose(trained, trainer.predict(feeds)["y"], rtol=1e-4, atol=1e-5, err_msg=name)
        held = {tensor.name: tensor for tensor in merged.graph.initializer}
        for tensor in model.graph.initializer:
            # Small constants of integers are made floats once and for all.
            if tensor.name in held:
                own, base = (onnx.numpy_helper.to_array(each) for each in (held[tensor.name], tensor))
                np.testing.assert_array_equal(own, base, err_msg=name)
        for weight, tensor in held.items():
            if ".lora_B." in weight:
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros(tensor.dims, np.float32), weight))
        (without,) = ort.InferenceSession(merged.SerializeToString()).run(None, feeds)
        (before,) = ort.InferenceSession(folder / name / "predict.onnx").run(None, feeds)
        np.testing.assert_array_equal(without, before, err_msg=name)


def _told(script: list[str], folder: Path) -> Any:
    done = subprocess.run(script, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
