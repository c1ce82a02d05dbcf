"""Bundles to be trained elsewhere, and how Python trains them; `--update-pictures` takes the page's picture anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.passes.training import torch_optimizers
from tests.anywhere.support import ROOT, Case, compiled, in_python

SIZE, STEPS = 35, 100


@pytest.fixture(scope="session", params=["keras_digits", "torch_lstm", "onnx_gru"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A bundle, data, and what Python makes of them with onnxruntime and numpy alone."""
    folder = tmp_path_factory.mktemp(request.param)
    step, arrays = {"keras_digits": digits, "torch_lstm": _torch_lstm, "onnx_gru": _onnx_gru}[request.param]()
    ll.export_training(step, folder / "bundle", external_data=request.param == "torch_lstm" or None)
    np.savez_compressed(folder / "data.npz", **arrays)
    losses, classes = _trained(folder / "bundle", arrays)
    return Case(request.param, folder / "bundle", folder / "data.npz", losses, classes, SIZE)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in C++."""
    return compiled(tmp_path_factory.mktemp("program"))


def digits() -> tuple[Path, dict[str, Any]]:
    """The step of the Keras classifier, and digits."""
    datasets = pytest.importorskip("sklearn.datasets", reason="pip install scikit-learn has the digits")
    images, labels = datasets.load_digits(return_X_y=True)
    x = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    return ROOT / "examples/keras_digits/digits_train.onnx", {"x": x[:700], "y": labels[:700].astype(np.int64)}


def _torch_lstm() -> tuple[Any, dict[str, Any]]:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 12, num_layers=2, dropout=0.2, batch_first=True)
            self.out = torch.nn.Linear(12, 3)

        def forward(self, x: Any) -> Any:
            return self.out(self.lstm(x)[0][:, -1])

    torch.manual_seed(0)
    module = Classifier()
    random = np.random.default_rng(0)
    x = random.standard_normal((300, 9, 4)).astype(np.float32)
    target = np.argmax(x.sum(1)[:, :3], -1)
    optimizer = torch.optim.AdamW(module.parameters(), 0.01)
    step = ll.from_torch(module, torch.from_numpy(x[:5]), torch.nn.CrossEntropyLoss(), optimizer)
    return step, {"x": x, "target": target}


def _onnx_gru() -> tuple[Any, dict[str, Any]]:
    """An ONNX file with a GRU node, of nobody's framework; its recurrent weights are frozen, in a file of their own."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        gru (float[B,9,4] x) => (float[B,3] scores) {
          steps = Transpose <perm = [1, 0, 2]> (x)
          all, last = GRU <hidden_size = 24, linear_before_reset = 1> (steps, w, r, b)
          first = Constant <value = int64[1] {0}> ()
          h = Squeeze(last, first)
          scores = MatMul(h, v) }"""
    )
    random = np.random.default_rng(0)
    for name, shape in {"w": (1, 72, 4), "r": (1, 72, 24), "b": (1, 144), "v": (24, 3)}.items():
        weight = random.uniform(-0.4, 0.4, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    x = random.standard_normal((300, 9, 4)).astype(np.float32)
    step = ll.from_onnx(model, "cross_entropy", torch_optimizers.Adam(learning_rate=0.02), trainable=["w", "b", "v"])
    return step, {"x": x, "target": np.argmax(x.sum(1)[:, :3], -1)}


def _trained(folder: Path, arrays: dict[str, Any]) -> tuple[list[float], list[int]]:
    about = json.loads((folder / "training.json").read_text())
    losses, state = in_python(folder, arrays, SIZE, STEPS)
    patched = folder.parent / "patched"
    patched.mkdir()
    predict = about["files"]["predict"]
    contents = {name: bytearray((folder / name).read_bytes()) for name in (predict["model"], *predict["data"])}
    for pair in about["state"]:
        if (place := pair["predict"]) is not None:
            end = place["offset"] + place["length"]
            contents[place["file"]][place["offset"] : end] = state[pair["input"]].tobytes()
    for name, content in contents.items():
        (patched / name).write_bytes(content)
    (result,) = ort.InferenceSession(patched / predict["model"]).run(None, {"x": arrays["x"]})
    return losses, result.argmax(-1).tolist()
