"""A small classifier with every kind of state, and the loop that trains its bundle without anything of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort

import lstm_lower as ll

CLASSIFIER = """
<ir_version: 8, opset_import: ["" : 17]>
layer (float[B,6] x) => (float[B,3] logits) <float ratio = {0.25}, bool training = {1}>
{ h = MatMul(x, w)  a, m, s = BatchNormalization <training_mode = 1> (h, scale, shift, mean, variance)
  c = Dropout(a, ratio, training)  logits = MatMul(c, v) }
"""
SHAPES = {"w": (6, 8), "v": (8, 3), **dict.fromkeys(("scale", "shift", "mean", "variance"), (8,))}


def classifier(optimizer: str | None = "adam") -> onnx.ModelProto:
    return ll.from_onnx(classifier_alone(), "cross_entropy", optimizer)


def classifier_alone() -> onnx.ModelProto:
    """The model without a loss."""
    model = onnx.parser.parse_model(CLASSIFIER)
    random = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(random.random(shape, np.float32) + 0.5, name))
    return model


FROZEN = """
<ir_version: 8, opset_import: ["" : 17]>
layer (float[B,6] x) => (float[B,3] logits)
{ h = MatMul(x, u)  t = Tanh(h)  m = MatMul(t, w)  a = Tanh(m)  logits = MatMul(a, v) }
"""


def frozen() -> onnx.ModelProto:
    """A classifier of which steps change the last layer alone; `batch` fits it, too."""
    model = onnx.parser.parse_model(FROZEN)
    random = np.random.default_rng(0)
    for name, shape in {"u": (6, 32), "w": (32, 48), "v": (48, 3)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(random.standard_normal(shape, np.float32), name))
    return ll.from_onnx(model, "cross_entropy", "adam", trainable="v")


def batch(number: int) -> dict[str, Any]:
    random = np.random.default_rng(number)
    return {"x": random.standard_normal((5, 6), np.float32), "target": random.integers(0, 3, 5)}


def plain_loop(
    folder: Path, steps: int, batches: Callable[[int], dict[str, Any]] = batch
) -> tuple[list[float], dict[str, Any], dict[str, Any]]:
    """Trains with onnxruntime, JSON and numpy alone; returns losses, the state and the description."""
    about = json.loads((folder / "training.json").read_text())
    init = ort.InferenceSession(folder / "init.onnx")
    state = dict(zip([value.name for value in init.get_outputs()], init.run(None, {}), strict=True))
    train = ort.InferenceSession(folder / "train.onnx")
    rate = {about["learning_rate"]["name"]: np.array(about["learning_rate"]["value"], np.float32)}
    moving = [pair for pair in about["state"] if pair["output"]]
    losses = []
    for step in range(steps):
        loss, *new = train.run([about["loss"], *(p["output"] for p in moving)], {**state, **rate, **batches(step)})
        state.update(zip([pair["input"] for pair in moving], new, strict=True))
        losses.append(float(loss))
    return losses, state, about


SEQUENCES = """
<ir_version: 8, opset_import: ["" : 17]>
layer (float[B,T,3] x, int32[B] n) => (float[B,3] logits)
{ steps = Transpose <perm = [1, 0, 2]> (x)
  all, last = GRU <hidden_size = 5, linear_before_reset = 1> (steps, w, r, b, n)
  first = Constant <value = int64[1] {0}> ()
  h = Squeeze(last, first)
  logits = MatMul(h, v) }
"""


def of_sequences() -> onnx.ModelProto:
    """A classifier of sequences `x` of lengths `n`."""
    model = onnx.parser.parse_model(SEQUENCES)
    random = np.random.default_rng(0)
    for name, shape in {"w": (1, 15, 3), "r": (1, 15, 5), "b": (1, 30), "v": (5, 3)}.items():
        weight = random.uniform(-0.4, 0.4, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return ll.from_onnx(model, "cross_entropy", "adam")
