"""Class numbers that are none: what trains and what evaluates fails, by every door, and nothing is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.ort_training import artifacts
from lstm_lower.passes.training import losses

SCORES = """<ir_version: 10, opset_import: ["" : 21]>
  g (float[N, 3] x) => (float[N, 4] y) <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { y = MatMul(x, w) }"""
# A loss of ONNX's own in the model.
LOSS = """<ir_version: 10, opset_import: ["" : 21]>
  g (float[N, 3] x, int64[N] target) => (float objective)
  <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { y = MatMul(x, w) objective = NODE }"""
SOFTMAX, LIKELIHOOD = "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"

STEPS: dict[str, Any] = {
    "cross_entropy": lambda: (SCORES, "cross_entropy"),
    "smoothed": lambda: (SCORES, losses.CrossEntropy(label_smoothing=0.1, weight=[1.0, 2, 1, 1])),
    "nll": lambda: (SCORES, "nll"),
    "multi_margin": lambda: (SCORES, "multi_margin"),
    SOFTMAX: lambda: (LOSS.replace("NODE", f"{SOFTMAX}(y, target)"), "objective"),
    LIKELIHOOD: lambda: (LOSS.replace("NODE", f"{LIKELIHOOD}(y, target)"), "objective"),
}
X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize("name", STEPS)
def test_steps_and_evaluations_refuse_them(name: str) -> None:
    text, loss = STEPS[name]()
    trainer = ll.Trainer(ll.from_onnx(onnx.parser.parse_model(text), loss, "sgd"), learning_rate=0.1)
    before = trainer.state_dict()["w"].copy()
    for number in (-1, -4, 4):
        feeds = {"x": X, "target": np.array([0, number])}
        for run in (trainer.step, trainer.evaluate):
            with pytest.raises(InvalidInputError, match="labels and indices require numbers in range"):
                run(feeds)
    np.testing.assert_array_equal(trainer.state_dict()["w"], before)
    right = {"x": X, "target": np.array([0, 3])}
    assert trainer.evaluate(right)["loss"] == trainer.step(right).loss
    assert np.any(trainer.state_dict()["w"] != before)


@pytest.mark.parametrize("ignored", [-1, -100, 2])
@pytest.mark.parametrize("form", ["cross_entropy", SOFTMAX])
def test_the_one_to_ignore_stays(form: str, ignored: int) -> None:
    text, loss = SCORES, losses.CrossEntropy(ignore_index=ignored)
    if form == SOFTMAX:
        text, loss = LOSS.replace("NODE", f"{SOFTMAX} <ignore_index = {ignored}> (y, target)"), "objective"
    trainer = ll.Trainer(ll.from_onnx(onnx.parser.parse_model(text), loss, "sgd"), learning_rate=0.1)
    alone = trainer.evaluate({"x": X[:1], "target": np.array([1])})
    assert trainer.evaluate({"x": X, "target": np.array([1, ignored])}) == alone
    with pytest.raises(InvalidInputError, match="onnxruntime failed"):
        trainer.evaluate({"x": X, "target": np.array([1, -3])})


def test_a_bundle_and_artifacts_refuse_them(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(SCORES)
    ll.export_training(ll.from_onnx(model, "cross_entropy", "sgd"), tmp_path)
    loss = artifacts.LossType.CrossEntropyLoss
    artifacts.generate_artifacts(model, requires_grad=["w"], loss=loss, artifact_directory=tmp_path)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    for file in ("train.onnx", "eval.onnx", "training_model.onnx", "eval_model.onnx"):
        session = ort.InferenceSession(tmp_path / file, options)
        for labels in ([0, 3], [0, -1], [4, 0]):
            feeds = {}
            for value in session.get_inputs():
                dims = [size if isinstance(size, int) else 2 for size in value.shape]
                kind = {"bool": bool, "int64": np.int64}.get(value.type[7:-1], np.float32)
                feeds[value.name] = np.ones(dims, kind) if kind != np.int64 else np.array(labels)
            if labels == [0, 3]:
                session.run(None, feeds)
                continue
            with pytest.raises(Exception, match=r"Gather|Scatter"):
                session.run(None, feeds)
