"""Exports the training steps of two Keras models, and trains the models in Keras. Needs TensorFlow.

Written are `digits.onnx` and `characters.onnx`, and `keras.json` with the accuracy on the test set that Keras' `fit`
reaches with the same shards, batches and early stopping.

Usage: python examples/long_run/export.py [--out DIR] [--megabytes N] [--epochs 3]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import keras
import numpy as np
import onnx
from tasks import BATCH, LENGTH, LETTERS, MEGABYTES, TASKS, shards

import lstm_lower as ll

LOSS, METRIC = "sparse_categorical_crossentropy", "sparse_categorical_accuracy"
RATE = 0.003


def build(task: str) -> keras.Model:
    """A classifier of images that are read row by row, or a model of the next character."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    if task == "digits":
        return keras.Sequential(
            [
                keras.Input((8, 8)),
                layers.Bidirectional(layers.LSTM(24)),
                layers.Dropout(0.2),
                layers.Dense(10, activation="softmax"),
            ]
        )
    return keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int64"),
            layers.Embedding(len(LETTERS), 16),
            layers.LSTM(64, return_sequences=True),
            layers.Dense(len(LETTERS), activation="softmax"),
        ]
    )


def train(task: str, megabytes: float, epochs: int) -> dict[str, float]:
    """Keras' own training: epochs of shards, until the validation gets no better for two of them."""
    model = build(task)
    model.compile(keras.optimizers.Adam(RATE), LOSS, metrics=[METRIC])
    held_out, test = TASKS[task][1]()
    best, waited, weights, done = float("inf"), 0, model.get_weights(), 0
    for epoch in range(epochs):
        for number, part in enumerate(shards(task, megabytes)):
            order = np.random.default_rng([epoch, number]).permutation(len(part["y"]))
            model.fit(part["x"][order], part["y"][order], batch_size=BATCH[task], shuffle=False, verbose=0)
        loss = model.evaluate(held_out["x"], held_out["y"], verbose=0)[0]
        print(f"Keras, {task}: epoch {epoch + 1}, validation {loss:.4f}", flush=True)
        done = epoch + 1
        if loss < best:
            best, waited, weights = loss, 0, model.get_weights()
        else:
            waited += 1
            if waited == 2:
                break
    model.set_weights(weights)
    return {"epochs": done, "accuracy": float(model.evaluate(test["x"], test["y"], verbose=0)[1])}


def main() -> None:
    """Exports both, and trains both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out") / "long_run")
    parser.add_argument("--megabytes", type=float, help="of shards")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        step = ll.from_keras(build(task), LOSS, keras.optimizers.Adam(RATE), metrics=[METRIC])
        onnx.save(step, options.out / f"{task}.onnx")
    reached = {}
    for task in TASKS:
        reached[task] = train(task, options.megabytes or MEGABYTES[task], options.epochs)
        (options.out / "keras.json").write_text(json.dumps(reached, indent=1) + "\n")


if __name__ == "__main__":
    main()
