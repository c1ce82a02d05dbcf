"""Teaches a forecaster that PyTorch exported the habits of another building, without PyTorch.

Usage: python examples/torch_forecaster/finetune.py [--out DIR] [--steps 400]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from series import DAY, load, windows

import lstm_lower as ll
from lstm_lower.pictures import BLUE, INK, RED, picture

HERE = Path(__file__).parent


def error(model: onnx.ModelProto | Path, past: np.ndarray, following: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean squared error of a forecaster, and its forecasts."""
    forecast = ll.Session(model).run({"past": past})["forecast"]
    return float(np.mean((forecast - following) ** 2)), forecast


def main() -> None:
    """Trains on the bakery's load of some weeks, tests on others, and draws both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
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
    options.out.mkdir(parents=True, exist_ok=True)
    onnx.save(tuned, options.out / "finetuned.onnx")

    before, old = error(HERE / "forecaster.onnx", test_past, test_following)
    after, new = error(tuned, test_past, test_following)
    print(f"mean squared error on weeks that were not trained on: {before:.4f} before, {after:.4f} after")

    with picture(options.out / "forecaster.svg", height=3) as figure:
        left, right = figure.subplots(1, 2)
        left.plot(losses, color=BLUE, linewidth=1)
        left.axhline(before, color=RED, linestyle="--", label="before, on other weeks")
        left.axhline(after, color=INK, linestyle="--", label="after, on other weeks")
        left.set(xlabel="training step", ylabel="mean squared error", yscale="log", title="Loss in onnxruntime")
        hours = range(DAY)
        right.plot(hours, test_following[0], color=INK, label="measured")
        right.plot(hours, old[0], color=RED, linestyle="--", label="forecast before")
        right.plot(hours, new[0], color=BLUE, label="forecast after")
        right.set(xlabel="hour of the next day", ylabel="load", title="Forecast of a day")
        left.legend(loc="center right")
        right.legend(loc="upper right")


if __name__ == "__main__":
    main()
