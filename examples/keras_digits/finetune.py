"""Fine-tunes what Keras has trained: upright digits are known, digits upside down are learned. Without TensorFlow.

Usage: python examples/keras_digits/finetune.py [--folder DIR] [--epochs 6]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from data import batches, digits, upside_down
from train import accuracy

import lstm_lower as ll


def main() -> None:
    """Trains on digits of both kinds and tests on both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="where export.py left its files")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    upright, test = digits()
    turned, turned_test = upside_down(upright), upside_down(test)
    both = np.concatenate([upright[0], turned[0]]), np.concatenate([upright[1], turned[1]])

    with np.load(options.folder / "keras_weights.npz") as weights:
        trainer = ll.Trainer(options.folder / "digits_train.onnx", initial_values=weights, learning_rate=0.003)

    def report(when: str) -> None:
        # Evaluating moves Adam's moments, which are put back.
        kept = trainer.state_dict()
        print(f"{when}: upright {accuracy(trainer, test):.4f}, upside down {accuracy(trainer, turned_test):.4f}")
        trainer.load_state_dict(kept)

    report("from Keras")
    for epoch in range(options.epochs):
        for x, y in batches(both, 1):
            trainer.step({"x": x, "y": y})
        report(f"epoch {epoch + 1}")


if __name__ == "__main__":
    main()
