"""The conformance set: bundles, data and recorded losses, by which a loop in any language is held to Python's.

    python -m tests.anywhere.conformance out/conformance

docs/other-languages.md says what a loop has to do with it. A case is a folder:

    bundle/             what `ll.export_training` wrote
    data/<input>.npy    samples, along the first axis, in C order; their numbers are the last bytes of a file
    expected.json       how the steps are fed, and what comes of them
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort

import lstm_lower as ll
from lstm_lower.passes.training import torch_optimizers
from tests.anywhere.support import ROOT, in_python

SIZE, STEPS, TOLERANCE = 35, 100, 1e-5

Arrays = dict[str, Any]


def digits() -> tuple[Path, Arrays]:
    """The step of the Keras classifier, and digits."""
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    x = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    return ROOT / "examples/keras_digits/digits_train.onnx", {"x": x[:700], "y": labels[:700].astype(np.int64)}


def _torch_lstm() -> tuple[Any, Arrays]:
    import torch

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 12, num_layers=2, dropout=0.2, batch_first=True)
            self.out = torch.nn.Linear(12, 3)

        def forward(self, x: Any) -> Any:
            return self.out(self.lstm(x)[0][:, -1])

    torch.manual_seed(0)
    module = Classifier()
    arrays = _steps()
    optimizer = torch.optim.AdamW(module.parameters(), 0.01)
    step = ll.from_torch(module, torch.from_numpy(arrays["x"][:5]), torch.nn.CrossEntropyLoss(), optimizer)
    return step, arrays


def _onnx_gru() -> tuple[Any, Arrays]:
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
    step = ll.from_onnx(model, "cross_entropy", torch_optimizers.Adam(learning_rate=0.02), trainable=["w", "b", "v"])
    return step, _steps()


def _steps() -> Arrays:
    """Sequences of nine steps, and which of three features has the largest sum."""
    x = np.random.default_rng(0).standard_normal((300, 9, 4)).astype(np.float32)
    return {"x": x, "target": np.argmax(x.sum(1)[:, :3], -1)}


CASES: dict[str, Callable[[], tuple[Any, Arrays]]] = {
    "keras_digits": digits,
    "torch_lstm": _torch_lstm,
    "onnx_gru": _onnx_gru,
}


def write(name: str, folder: Path) -> Arrays:
    """Writes a case, trains it with onnxruntime and numpy alone, and records what comes of it.

    Returns:
        Its data.
    """
    step, arrays = CASES[name]()
    ll.export_training(step, folder / "bundle", external_data=name == "torch_lstm" or None)
    (folder / "data").mkdir(exist_ok=True)
    for key, array in arrays.items():
        np.save(folder / "data" / f"{key}.npy", array)
    losses, state = in_python(folder / "bundle", arrays, SIZE, STEPS)
    expected = {
        "steps": STEPS,
        "batch_size": SIZE,
        "data": {key: {"dtype": array.dtype.name, "shape": array.shape} for key, array in arrays.items()},
        "tolerance": TOLERANCE,
        "losses": losses,
        "classes": _classes(folder / "bundle", state, arrays["x"]),
    }
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    return arrays


def _classes(bundle: Path, state: Arrays, x: Any) -> list[int]:
    """The largest score of each sample, by `predict` with the trained state written into its files."""
    about = json.loads((bundle / "training.json").read_text())
    predict = about["files"]["predict"]
    contents = {name: bytearray((bundle / name).read_bytes()) for name in (predict["model"], *predict["data"])}
    for pair in about["state"]:
        if (place := pair["predict"]) is not None:
            end = place["offset"] + place["length"]
            contents[place["file"]][place["offset"] : end] = state[pair["input"]].tobytes()
    patched = bundle.parent / "patched"
    patched.mkdir(exist_ok=True)
    for name, content in contents.items():
        (patched / name).write_bytes(content)
    (result,) = ort.InferenceSession(patched / predict["model"]).run(None, {"x": x})
    for name in contents:
        (patched / name).unlink()
    patched.rmdir()
    return [int(place) for place in result.argmax(-1)]


def main() -> None:
    """Writes all cases."""
    parser = argparse.ArgumentParser(description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name in CASES:
        (folder / name).mkdir(parents=True, exist_ok=True)
        write(name, folder / name)


if __name__ == "__main__":
    main()
