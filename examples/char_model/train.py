"""Trains the character model of `graphs/char_lstm_train.onnx` in onnxruntime and draws its loss.

Usage: python examples/char_model/train.py [--steps 300] [--out DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import lstm_lower as ll
from lstm_lower.pictures import picture

HERE = Path(__file__).parent
MODEL = HERE.parent / "graphs" / "char_lstm_train.onnx"
TEXT = (
    "A loop that runs a thousand times should do in each turn only what the turn before made possible; "
    "all other work belongs in front of it, or behind it, where one wide product does it at once. "
).lower()
STEPS, BATCH = 20, 16


def main() -> None:
    """Trains and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("out") / HERE.name)
    options = parser.parse_args()

    with np.load(MODEL.with_suffix(".npz")) as recorded:
        feeds = {name[3:]: recorded[name] for name in recorded.files if name.startswith("in:")}
    data = ("ids:0", "labels:0", "learning_rate:0")
    weights = {name: array for name, array in feeds.items() if name not in data}
    trainer = ll.Trainer(MODEL, initial_values=weights, learning_rate=1.0, clip_norm=1.0)

    characters = sorted(set(TEXT))
    text = np.array([characters.index(character) for character in TEXT], np.int32)
    rng = np.random.default_rng(1)
    losses = []
    for step in range(1, options.steps + 1):
        starts = rng.integers(0, len(text) - STEPS - 1, BATCH)
        windows = np.stack([text[start : start + STEPS + 1] for start in starts], axis=1)
        losses.append(trainer.step({"ids:0": windows[:-1], "labels:0": windows[1:]}).loss)
        if step % 50 == 0:
            print(f"step {step}: loss {losses[-1]:.3f}")

    options.out.mkdir(parents=True, exist_ok=True)
    with picture(options.out / "loss.svg", height=3) as figure:
        axes = figure.subplots()
        axes.plot(range(1, len(losses) + 1), losses)
        axes.set(xlabel="step", ylabel="cross entropy per character", title="Trained in onnxruntime")
    trainer.save(options.out / "checkpoint.safetensors")


if __name__ == "__main__":
    main()
