"""Exports the training step of a Keras LSTM classifier of handwritten digits. Needs TensorFlow.

Each digit is a sequence of eight rows of eight pixels. With --compare, Keras trains the same model on the same batches
and its losses and accuracy are kept for `finetune.py` to draw.

Usage: python examples/keras_digits/export.py --out DIR [--compare --epochs 6]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import keras
import onnx
from data import batches, digits

import lstm_lower as ll


def build() -> keras.Model:
    """A bidirectional LSTM and a dense layer."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Bidirectional(keras.layers.LSTM(24)),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main() -> None:
    """Exports, and trains in Keras if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    model = build()
    exported = ll.from_keras(
        model,
        "sparse_categorical_crossentropy",
        keras.optimizers.Adam(0.005),
        metrics=["sparse_categorical_accuracy"],
    )
    onnx.save(exported, options.out / "digits_train.onnx")
    print("wrote", options.out / "digits_train.onnx")
    if options.compare:
        model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy")
        train, test = digits()
        losses = [float(model.train_on_batch(x, y)) for x, y in batches(train, options.epochs)]
        accuracy = float((model.predict(test[0], verbose=0).argmax(-1) == test[1]).mean())
        (options.out / "keras.json").write_text(json.dumps({"losses": losses, "accuracy": accuracy}))
        print(f"Keras: test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
