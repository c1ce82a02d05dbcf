"""Teaches a forecaster that PyTorch exported the habits of another building, without PyTorch.

Usage: python examples/torch_forecaster/finetune.py [--out DIR] [--steps 400]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from matplotlib.figure import Figure
from onnx import numpy_helper
from series import DAY, load, windows

import lstm_lower as ll

HERE = Path(__file__).parent


def error(model: onnx.ModelProto | Path, past: np.ndarray, following: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean squared error of a forecaster, and its forecasts."""
    forecast = ll.Session(model).run({"past": past})["forecast"]
    return float(np.mean((forecast - following) ** 2)), forecast


def main() -> None:
    """Trains on the bakery's load of some weeks, tests on others, and draws both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    past, following = windows(load("bakery", 42, seed=1))
    test_past, test_following = windows(load("bakery", 21, seed=2))

    step = ll.from_onnx(HERE / "forecaster.onnx", "mse", "adam")
    trainer = ll.Trainer(step, learning_rate=0.01)
    random = np.random.default_rng(0)
    losses = []
    for _ in range(options.steps):
        rows = random.integers(0, len(past), 32)
        losses.append(float(trainer.step({"past": past[rows], "target": following[rows]}).loss))

    # The weights go back into the file they came from, which any onnxruntime runs.
    tuned = onnx.load(HERE / "forecaster.onnx")
    state = trainer.state_dict()
    for weight in tuned.graph.initializer:
        if weight.name in state:
            weight.CopyFrom(numpy_helper.from_array(state[weight.name], weight.name))
    onnx.save(tuned, "finetuned.onnx")

    before, old = error(HERE / "forecaster.onnx", test_past, test_following)
    after, new = error(tuned, test_past, test_following)
    print(f"mean squared error on weeks that were not trained on: {before:.4f} before, {after:.4f} after")

    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(losses, linewidth=0.8)
    left.axhline(before, color="#b5382f", linewidth=0.8, label="error before, other weeks")
    left.axhline(after, color="#1b6ca8", linewidth=0.8, label="error after, other weeks")
    left.set(xlabel="step", ylabel="mean squared error", yscale="log")
    hours = range(DAY)
    right.plot(hours, test_following[0], color="#444444", label="load")
    right.plot(hours, old[0], color="#b5382f", linestyle="--", label="forecast before")
    right.plot(hours, new[0], color="#1b6ca8", label="forecast after")
    right.set(xlabel="hour of the next day")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(options.out / "forecaster.png", dpi=90)


if __name__ == "__main__":
    main()
