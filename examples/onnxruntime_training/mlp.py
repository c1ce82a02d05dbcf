"""A perceptron on handwritten digits, as scripts of onnxruntime-training train one; only the import is another.

Usage: python examples/onnxruntime_training/mlp.py [--out DIR]
"""

from __future__ import annotations

import argparse
import io
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import nn

from lstm_lower.ort_training import artifacts
from lstm_lower.ort_training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

BATCH, EPOCHS, RATE = 64, 8, 0.5


class MLP(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(64, 48), nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pixels [B, 64] -> scores [B, 10]."""
        return self.fc2(torch.relu(self.fc1(x)))


def write_artifacts(module: nn.Module, folder: Path) -> None:
    """The offline half: what a training run starts from, as files."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has a newer exporter
        torch.onnx.export(
            module, (torch.zeros(2, 64),), stream, dynamo=False,
            input_names=["input"], output_names=["output"],
            dynamic_axes={name: {0: "batch"} for name in ("input", "output")},
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
        )  # fmt: skip
    artifacts.generate_artifacts(
        onnx.load_from_string(stream.getvalue()),
        requires_grad=[name for name, parameter in module.named_parameters() if parameter.requires_grad],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.SGD,
        artifact_directory=folder,
        additional_output_names=["output"],
    )


def train(folder: Path, pixels: np.ndarray, labels: np.ndarray) -> list[float]:
    """The loop on the device, without PyTorch."""
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    model = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", model)
    batches = range(0, len(pixels) - 360, BATCH)
    scheduler = LinearLRScheduler(optimizer, 5, EPOCHS * len(batches), RATE)
    losses = []
    for epoch in range(EPOCHS):
        model.train()
        for start in batches:
            loss, _ = model(pixels[start : start + BATCH], labels[start : start + BATCH])
            losses.append(float(loss))
            optimizer.step()
            scheduler.step()
            model.lazy_reset_grad()
        model.eval()
        loss, scores = model(pixels[-360:], labels[-360:])
        print(f"epoch {epoch + 1}: test loss {loss:.4f}, accuracy {(scores.argmax(1) == labels[-360:]).mean():.4f}")
    CheckpointState.save_checkpoint(state, folder / "trained")
    model.export_model_for_inferencing(folder / "inference.onnx", ["output"])
    return losses


def train_in_pytorch(module: nn.Module, pixels: np.ndarray, labels: np.ndarray) -> list[float]:
    """The same in plain PyTorch."""
    batches = range(0, len(pixels) - 360, BATCH)
    total = EPOCHS * len(batches)
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: n / 5 if n < 5 else max(0, (total - n) / (total - 5)))
    losses = []
    for _ in range(EPOCHS):
        for start in batches:
            x, y = (torch.from_numpy(array[start : start + BATCH]) for array in (pixels, labels))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x), y)
            loss.backward()
            optimizer.step()
            rate.step()
            losses.append(loss.item())
    return losses


def main() -> None:
    """Writes artifacts, trains with and without them, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out") / "mlp_artifacts")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    pixels, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    module = MLP()
    write_artifacts(module, folder)
    losses, expected = train(folder, pixels, labels), train_in_pytorch(module, pixels, labels)
    difference = np.abs(np.subtract(losses, expected)).max()
    print(f"{len(losses)} steps, largest difference of a loss from PyTorch's: {difference:.1e}")


if __name__ == "__main__":
    main()
