"""Scripts with the import changed against plain PyTorch, on models that onnxruntime-training takes and refuses."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from lstm_lower.ort_training import artifacts, onnxblock
from lstm_lower.ort_training.api import CheckpointState, Module, Optimizer

torch = pytest.importorskip("torch")
scripts = pytest.importorskip("tests.support.torch_scripts")

RATE = 0.02
OPTIMIZERS: dict[str, Any] = {
    "sgd": (artifacts.OptimType.SGD, lambda weights: torch.optim.SGD(weights, RATE)),
    "adamw": (artifacts.OptimType.AdamW, lambda weights: scripts.AdamW(weights, RATE)),
    "decay": (
        onnxblock.optim.AdamW(weight_decay=0.5, eps=1e-5),
        lambda weights: scripts.AdamW(weights, RATE, eps=1e-5, weight_decay=0.5),
    ),
}


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(0)
    if name == "perceptron":
        return scripts.Perceptron(), (torch.randn(12, 8),)
    lengths = [torch.tensor([7, 6, 6, 3, 2, 1])] if name == "lstm_lengths" else []
    return scripts.Classifier(lengths=bool(lengths)), (torch.randn(6, 7, 3), *lengths)


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("perceptron", "adamw"), ("perceptron", "decay"), ("lstm", "adamw"), ("lstm_lengths", "sgd")],
)
def test_losses_are_those_of_pytorch(name: str, optimizer: str, tmp_path: Path) -> None:
    module, inputs = made(name)
    labels = torch.arange(len(inputs[0])) % 4
    ours, theirs = OPTIMIZERS[optimizer]
    model = scripts.exported(copy.deepcopy(module), inputs)
    artifacts.generate_artifacts(
        model,
        requires_grad=[weight for weight, _ in module.named_parameters()],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=ours,
        artifact_directory=tmp_path,
    )
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    training = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    updates = Optimizer(tmp_path / "optimizer_model.onnx", training)
    updates.set_learning_rate(RATE)
    rule = theirs(module.parameters())
    expected, losses = [], []
    for _ in range(10):
        rule.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(*inputs), labels)
        loss.backward()
        rule.step()
        expected.append(loss.item())
        losses.append(float(training(*(value.numpy() for value in (*inputs, labels)))))
        updates.step()
        training.lazy_reset_grad()
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)
    assert losses[-1] < losses[0]
    for weight, parameter in state.parameters:
        np.testing.assert_allclose(parameter.data, module.get_parameter(weight).detach(), rtol=1e-4, atol=2e-5)


@pytest.mark.slow
def test_peepholes_and_directions_by_central_differences(tmp_path: Path) -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[T,B,3] x, int32[B] lengths) => (float[2,B,4] output) {
            Y, output = LSTM<hidden_size=4, direction="bidirectional">(x, W, R, b, lengths, , , P)
        }""")
    rng = np.random.default_rng(1)
    weights = {
        name: rng.uniform(-1, 1, shape).astype(np.float32)
        for name, shape in {"W": (2, 16, 3), "R": (2, 16, 4), "b": (2, 32), "P": (2, 12)}.items()
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    artifacts.generate_artifacts(
        model, requires_grad=list(weights), loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path
    )
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    module = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    assert module.input_names() == ["x", "lengths", "target"]
    x, lengths, target = rng.standard_normal((5, 3, 3)), np.array([5, 2, 4], np.int32), rng.standard_normal((2, 3, 4))
    fed = (x.astype(np.float32), lengths, target.astype(np.float32))
    module(*fed)
    for name, value in weights.items():
        direction = rng.standard_normal(value.shape).astype(np.float32)
        gradient = state.parameters[name].grad
        assert gradient is not None
        ends = []
        for sign in (1, -1):
            state.parameters[name] = value + np.float32(sign * 1e-2) * direction
            ends.append(float(module.eval()(*fed)))
        state.parameters[name] = value
        np.testing.assert_allclose(np.vdot(gradient, direction), (ends[0] - ends[1]) / 2e-2, rtol=5e-3, atol=5e-4)


def test_layers_train_in_training_and_rest_in_evaluation_mode(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 4)]
    module = torch.nn.Sequential(*layers)
    x, labels = torch.randn(10, 8), torch.arange(10) % 4
    model = scripts.exported(copy.deepcopy(module), (x,))
    artifacts.generate_artifacts(
        model,
        requires_grad=[weight for weight, _ in module.named_parameters()],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.SGD,
        artifact_directory=tmp_path,
        additional_output_names=["output"],
    )
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    training = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    fed = (x.numpy(), labels.numpy())
    losses = {float(training(*fed)[0]) for _ in range(3)}
    assert len(losses) == 3, "each step drops other elements"
    # Running statistics are those of the whole batch, by ONNX's definition; PyTorch's variance is of a sample.
    sums, norm = layers[0](x).detach(), layers[1]
    # The exporter runs the module.
    held = {weight.name: torch.tensor(onnx.numpy_helper.to_array(weight)) for weight in model.graph.initializer}
    norm.running_mean, norm.running_var = held["1.running_mean"], held["1.running_var"]
    for _ in range(3):
        norm.running_mean += 0.1 * (sums.mean(0) - norm.running_mean)
        norm.running_var += 0.1 * (sums.var(0, unbiased=False) - norm.running_var)
    module.eval()
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(training.eval()(*fed)[1], expected, rtol=1e-5, atol=1e-5)
    CheckpointState.save_checkpoint(state, tmp_path / "kept")
    again = CheckpointState.load_checkpoint(tmp_path / "kept")
    resumed = Module(tmp_path / "training_model.onnx", again, tmp_path / "eval_model.onnx").eval()
    np.testing.assert_array_equal(resumed(*fed)[1], training(*fed)[1])
    training.export_model_for_inferencing(tmp_path / "inference.onnx", ["output"])
    session = onnxruntime.InferenceSession(tmp_path / "inference.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"input": fed[0]})[0], expected, rtol=1e-5, atol=1e-5)
