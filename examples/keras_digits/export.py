"""Exports the training step of a Keras LSTM classifier, and trains the classifier in Keras. Needs TensorFlow.

Each digit is a sequence of eight rows of eight pixels. Three files are written, which lie beside this script:

- `digits_train.onnx`: loss, gradients, Adam and the accuracy, with the weights before training;
- `keras.json`: Keras' losses, batch by batch, and its accuracy on the test set at the end;
- `keras_weights.npz`: the weights after Keras has trained them.

Usage: python examples/keras_digits/export.py [--out DIR] [--epochs 15]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import keras
import numpy as np
import onnx
from data import batches, digits

import lstm_lower as ll

LOSS = "sparse_categorical_crossentropy"
METRIC = "sparse_categorical_accuracy"
RATE = 0.005


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
    """Exports, trains in Keras, and keeps what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out") / "keras_digits")
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = build()
    exported = ll.from_keras(model, LOSS, keras.optimizers.Adam(RATE), metrics=[METRIC])
    onnx.save(ll.lower(exported), options.out / "digits_train.onnx")

    model.compile(keras.optimizers.Adam(RATE), LOSS)
    train, test = digits()
    losses = [round(float(model.train_on_batch(x, y)), 6) for x, y in batches(train, options.epochs)]
    accuracy = float((model.predict(test[0], verbose=0).argmax(-1) == test[1]).mean())
    record = {"epochs": options.epochs, "accuracy": accuracy, "losses": losses}
    (options.out / "keras.json").write_text(json.dumps(record) + "\n")
    # The file knows the weights by their paths in Keras.
    weights = {variable.path: variable.numpy() for variable in model.trainable_variables}
    np.savez(options.out / "keras_weights.npz", **weights)
    print(f"Keras: {options.epochs} epochs, test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
