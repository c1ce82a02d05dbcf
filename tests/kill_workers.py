"""Kills workers of a data-parallel run at random moments, and checks that nothing is lost.

First 1, 2 and 4 workers train as one process does: their losses are compared. Then a run on several workers is
disturbed: a thread kills one worker after the other with SIGKILL, at any moment of a step. All losses and the state at
the end must equal those of an undisturbed run, bit for bit.

Usage: python tests/kill_workers.py [--kills 20] [--workers 3]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import lstm_lower as ll  # noqa: E402 (of this checkout)
from lstm_lower.runtime.training.parallel import pool  # noqa: E402
from lstm_lower.runtime.training.parallel.trainer import DistributedTrainer  # noqa: E402

MODEL = ROOT / "examples" / "graphs" / "char_lstm_train.onnx"
STEPS, ROWS = 40, 12

Array = np.ndarray[Any, Any]


def trainer() -> ll.Trainer:
    """The character model at its first values."""
    with np.load(MODEL.with_suffix(".npz")) as recorded:
        values = {name[3:]: recorded[name] for name in recorded.files if name.startswith("in:")}
    initial = {name: value for name, value in values.items() if name[0] not in "il" or name.startswith("lstm")}
    return ll.Trainer(MODEL, initial_values=initial, learning_rate=0.5, clip_norm=1.0)


def batches() -> list[dict[str, Array]]:
    """Random windows of characters."""
    ids = np.random.default_rng(2).integers(0, 20, (STEPS, 21, ROWS)).astype(np.int32)
    return [{"ids:0": each[:-1], "labels:0": each[1:]} for each in ids]


class Killer:
    """Kills one worker after the other, from a thread.

    Attributes:
        kills: how many were alive when they were killed.
    """

    def __init__(self, workers: DistributedTrainer, seed: int) -> None:
        self.kills = 0
        self._workers, self._random = workers, random.Random(seed)
        # Asked by the thread that trains, as a pool's calls are made by one.
        self._living = workers.processes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def look(self) -> None:
        """Learns who lives now."""
        self._living = self._workers.processes()

    def _run(self) -> None:
        while not self._done.wait(self._random.uniform(0, 0.2)):
            # One survivor is needed: the state is with the workers.
            if not self._living:
                continue
            process = self._random.choice(self._living)
            self._living = []
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.kills += 1


def run(count: int, seed: int | None = None) -> tuple[list[float], dict[str, Array], int]:
    """Losses, the state at the end, and the number of kills."""
    trained = trainer()
    with DistributedTrainer(trained, count, reduction="mean") as workers:
        losses = []
        if seed is None:
            losses = [workers.step(batch).loss for batch in batches()]
            return losses, workers.state_dict(), 0
        with Killer(workers, seed) as killer:
            for batch in batches():
                losses.append(workers.step(batch).loss)
                killer.look()
        return losses, workers.state_dict(), killer.kills


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=3)
    options = parser.parse_args()
    # One cluster for all runs.
    pool.connect(None, 4, 0)
    alone = trainer()
    expected = [alone.step(batch).loss for batch in batches()]
    undisturbed, state, _ = run(options.workers)
    for count in (1, 2, 4):
        losses = run(count)[0]
        worst = max(abs(loss - one) for loss, one in zip(losses, expected, strict=True))
        say(f"{count} workers: {STEPS} losses, {losses[0]:.4f} to {losses[-1]:.4f}, within {worst:.1e} of one process")
        if worst > 1e-5:
            raise SystemExit(1)
    kills = runs = equal = 0
    start = time.monotonic()
    while kills < options.kills:
        losses, found, killed = run(options.workers, runs)
        kills, runs = kills + killed, runs + 1
        same = all(np.array_equal(value, found[name]) for name, value in state.items())
        equal += same and losses == undisturbed
        seconds = time.monotonic() - start
        say(f"{kills} kills among {options.workers} workers; {equal} of {runs} runs equal, {seconds:.0f} s")
    if equal != runs:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
