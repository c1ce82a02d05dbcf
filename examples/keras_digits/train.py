"""Trains the exported classifier of digits in onnxruntime as Keras did and draws both losses. Without TensorFlow.

Usage: python examples/keras_digits/train.py [--folder DIR] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from data import Set, batches, digits

import lstm_lower as ll
from lstm_lower.pictures import BLUE, PALE, picture

METRIC = "sparse_categorical_accuracy"
HERE = Path(__file__).parent


def accuracy(trainer: ll.Trainer, data: Set) -> float:
    """Share of the digits that are recognised; with a learning rate of 0 a step leaves the weights alone."""
    rate, trainer.learning_rate = trainer.learning_rate, 0.0
    result = trainer.step({"x": data[0], "y": data[1]}, [METRIC])
    trainer.learning_rate = rate
    return float(result.outputs[METRIC])


def draw(runs: dict[str, tuple[list[float], float]], path: Path) -> None:
    """Draws losses side by side.

    Args:
        runs: title -> losses batch by batch, and the accuracy at the end.
        path: a picture's file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, height=3) as figure:
        panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
        for axes, (title, (losses, final)) in zip(panels, runs.items(), strict=True):
            smooth = np.convolve(losses, np.full(20, 1 / 20), "valid")
            axes.semilogy(range(1, len(losses) + 1), losses, linewidth=0.8, color=PALE, label="a batch")
            axes.semilogy(range(20, len(losses) + 1), smooth, color=BLUE, label="mean of 20")
            axes.set(xlabel="step", title=f"{title}, test accuracy {final:.1%}")
        panels[0].set_ylabel("loss")
        panels[0].legend()


def main() -> None:
    """Trains, compares and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=HERE, help="where export.py left its files")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where to put loss.svg")
    options = parser.parse_args()
    keras = json.loads((options.folder / "keras.json").read_text())
    train, test = digits()

    trainer = ll.Trainer(options.folder / "digits_train.onnx")
    losses = [trainer.step({"x": x, "y": y}).loss for x, y in batches(train, keras["epochs"])]
    final = accuracy(trainer, test)

    apart = max(abs(ours - theirs) for ours, theirs in zip(losses, keras["losses"], strict=True))
    print(f"onnxruntime: {keras['epochs']} epochs, test accuracy {final:.4f}, Keras {keras['accuracy']:.4f}")
    print(f"losses of {len(losses)} steps, largest difference: {apart:.1e}")
    runs = {"Keras": (keras["losses"], keras["accuracy"]), "onnxruntime": (losses, final)}
    draw(runs, options.out / "loss.svg")
    if "tensorflow" in sys.modules:
        raise SystemExit("TensorFlow was imported")
    if abs(final - keras["accuracy"]) > 0.01:
        raise SystemExit("the accuracies differ by more than one percentage point")


if __name__ == "__main__":
    main()
