"""Trains the exported classifier of digits in onnxruntime; TensorFlow is not imported.

Usage: python examples/keras_digits/finetune.py --folder DIR [--epochs 6]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from data import batches, digits
from matplotlib.figure import Figure

import lstm_lower as ll

METRIC = "sparse_categorical_accuracy"


def main() -> None:
    """Trains, tests and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    trainer = ll.Trainer(options.folder / "digits_train.onnx")
    train, test = digits()
    losses = [trainer.step({"x": x, "y": y}).loss for x, y in batches(train, options.epochs)]
    # A step of learning rate 0 is an evaluation.
    trainer.learning_rate = 0.0
    accuracy = float(trainer.step({"x": test[0], "y": test[1]}, [METRIC]).outputs[METRIC])
    print(f"onnxruntime: test accuracy {accuracy:.4f}")
    assert "tensorflow" not in sys.modules

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.semilogy(losses, label=f"onnxruntime (test accuracy {accuracy:.1%})")
    kept = options.folder / "keras.json"
    if kept.is_file():
        keras = json.loads(kept.read_text())
        axes.semilogy(keras["losses"], "--", label=f"Keras (test accuracy {keras['accuracy']:.1%})")
    axes.set(xlabel="step", ylabel="loss")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(options.folder / "loss.png", dpi=100)
    (options.folder / "onnxruntime.json").write_text(json.dumps({"losses": losses, "accuracy": accuracy}))


if __name__ == "__main__":
    main()
