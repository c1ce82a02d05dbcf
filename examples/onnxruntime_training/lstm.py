"""A bidirectional LSTM with a loss of one's own, which onnxruntime-training refuses; only the import is another.

Usage: python examples/onnxruntime_training/lstm.py [--out DIR]
"""

from __future__ import annotations

import argparse
import io
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

from lstm_lower.ort_training import artifacts, onnxblock
from lstm_lower.ort_training.api import CheckpointState, Module, Optimizer

STEPS, ACCUMULATED, RATE, CLIP = 200, 2, 2.0, 1.0


class Tagger(nn.Module):
    """Whether a series rises or falls at each of its steps, from both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 12, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """Series [B, T, 1] -> logits [B, T, 1]."""
        return self.head(self.lstm(series)[0])


class TaggingLoss(onnxblock.Block):
    """The cross entropy of the tags, and a little of the logits' squares."""

    def __init__(self) -> None:
        super().__init__()
        self.entropy = onnxblock.loss.BCEWithLogitsLoss()
        self.square, self.mean = onnxblock.blocks.Pow(2.0), onnxblock.blocks.ReduceMean(keepdims=False)
        self.share, self.scale, self.add = (
            onnxblock.blocks.Constant(0.001),
            onnxblock.blocks.Mul(),
            onnxblock.blocks.Add(),
        )

    def build(self, logits: str) -> str:
        """Stacks the loss on the model."""
        decay = self.scale(self.mean(self.square(logits)), self.share())
        return self.mean(self.add(self.entropy(logits, "tags"), decay))


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    """Noisy waves and whether they rise."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(STEPS):
        place = random.uniform(0, 6, (16, 1)) + np.arange(30) * random.uniform(0.2, 0.5, (16, 1))
        series = np.sin(place) + 0.1 * random.standard_normal(place.shape)
        found.append((series[..., None].astype(np.float32), (np.cos(place) > 0)[..., None].astype(np.float32)))
    return found


def write_artifacts(module: nn.Module, folder: Path) -> None:
    """The offline half: what a training run starts from, as files."""
    stream = io.BytesIO()
    axes = {name: {0: "batch", 1: "time"} for name in ("series", "logits")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has a newer exporter
        torch.onnx.export(
            module, (torch.zeros(2, 30, 1),), stream, dynamo=False,
            input_names=["series"], output_names=["logits"], dynamic_axes=axes,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
        )  # fmt: skip
    artifacts.generate_artifacts(
        onnx.load_from_string(stream.getvalue()),
        requires_grad=[name for name, _ in module.named_parameters()],
        loss=TaggingLoss(),
        optimizer=onnxblock.optim.SGD(clip_grad=onnxblock.optim.ClipGradNorm(CLIP)),
        artifact_directory=folder,
    )


def train(folder: Path, data: list[tuple[np.ndarray, np.ndarray]]) -> list[float]:
    """The loop on the device: gradients of several batches make one update."""
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    model = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", model)
    optimizer.set_learning_rate(RATE)
    losses = []
    for number, (series, tags) in enumerate(data, 1):
        losses.append(float(model(series, tags)))
        if number % ACCUMULATED == 0:
            optimizer.step()
            model.lazy_reset_grad()
    state.properties["steps"] = len(data)
    CheckpointState.save_checkpoint(state, folder / "trained", include_optimizer_state=True)
    return losses


def train_in_pytorch(module: nn.Module, data: list[tuple[np.ndarray, np.ndarray]]) -> list[float]:
    """The same in plain PyTorch."""
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    losses = []
    for number, batch in enumerate(data, 1):
        series, tags = map(torch.from_numpy, batch)
        logits = module(series)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, tags) + 0.001 * logits.square().mean()
        loss.backward()
        losses.append(loss.item())
        if number % ACCUMULATED == 0:
            nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
    return losses


def main() -> None:
    """Writes artifacts, trains with and without them, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out") / "lstm_artifacts")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module, data = Tagger(), batches()
    write_artifacts(module, folder)
    losses, expected = train(folder, data), train_in_pytorch(module, data)
    print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    difference = np.abs(np.subtract(losses, expected)).max()
    print(f"{len(losses)} steps, largest difference of a loss from PyTorch's: {difference:.1e}")


if __name__ == "__main__":
    main()
