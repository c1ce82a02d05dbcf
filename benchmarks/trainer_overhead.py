"""Time of a trainer's step against the bare onnxruntime call with everything bound, in turns.

Usage: python benchmarks/trainer_overhead.py [--rounds 15] [--steps 40]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import lstm_lower as ll

MODEL = Path(__file__).parent.parent / "examples" / "graphs" / "char_lstm_train.onnx"
BATCHES = (4, 32, 128)


def ratios(rounds: int, steps: int, batch: int) -> list[float]:
    """Per round, the time of `steps` steps of the trainer divided by that of the bare call."""
    with np.load(MODEL.with_suffix(".npz")) as recorded:
        feeds = {name[3:]: recorded[name] for name in recorded.files if name.startswith("in:")}
    data = {name: np.tile(feeds.pop(name), (1, batch // 4)) for name in ("ids:0", "labels:0")}
    rate = float(feeds.pop("learning_rate:0"))
    trainer = ll.Trainer(MODEL, initial_values=feeds, learning_rate=rate)
    trainer.step(data)
    bound = trainer._binding(())
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(steps):
            trainer.step(data)
        middle = time.perf_counter()
        for number in range(steps):
            trainer.session.ort.run_with_iobinding(bound[number % 2])
        found.append((middle - start) / (time.perf_counter() - middle))
    return found


def overhead(rounds: int, steps: int, batch: int) -> float:
    """The median of the rounds."""
    return statistics.median(ratios(rounds, steps, batch))


def main() -> None:
    """Prints the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    for batch in BATCHES:
        found = overhead(options.rounds, options.steps, batch)
        sys.stdout.write(f"batch {batch}: trainer step / bare run = {found:.3f} (median)\n")


if __name__ == "__main__":
    main()
