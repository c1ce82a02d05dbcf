"""Kills `lstm-lower train` at random moments and checks that the resumed run equals one that was left alone.

Usage: python tests/kill_and_resume.py [--kills 50]
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples" / "graphs" / "char_lstm_train.onnx"
EPOCHS, SAMPLES, BATCH = 3, 64, 4


def write_data(folder: Path) -> None:
    """Random windows of characters, and the model's initial values."""
    with np.load(MODEL.with_suffix(".npz")) as recorded:
        initial = {
            name[3:]: recorded[name] for name in recorded.files if name.startswith("in:") and name[3:4] not in "il"
        }
    ids = np.random.default_rng(2).integers(0, initial["dense_b:0"].size, (21, SAMPLES)).astype(np.int32)
    np.savez(folder / "data.npz", **{"ids:0": ids[:-1], "labels:0": ids[1:]})  # type: ignore[arg-type]
    np.savez(folder / "initial.npz", **initial)


def command(folder: Path, name: str) -> list[str]:
    options = {
        "--data": folder / "data.npz",
        "--initial": folder / "initial.npz",
        "--out": folder / name,
        "--epochs": EPOCHS,
        "--batch-size": BATCH,
        "--learning-rate": 0.5,
        "--save-every": 5,
    }
    words = [str(word) for pair in options.items() for word in pair]
    return [sys.executable, "-m", "lstm_lower", "train", str(MODEL), *words, "--no-plot"]


def complete(folder: Path, name: str) -> None:
    subprocess.run(command(folder, name), cwd=ROOT, check=True, capture_output=True)


def kill_once(folder: Path, name: str, moment: Any) -> None:
    """Starts the run and kills it: at a number of seconds, or once the log has a number of bytes."""
    process = subprocess.Popen(command(folder, name), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoint = folder / name / "checkpoint.safetensors"
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    deadline = time.monotonic() + 30
    # The moment counts from the first new checkpoint, or from nothing: then the start is what is killed.
    while moment > 0 and process.poll() is None and time.monotonic() < deadline:
        if checkpoint.exists() and checkpoint.stat().st_mtime_ns > before:
            time.sleep(moment)
            break
        time.sleep(0.001)
    process.kill()
    process.wait()


def same(folder: Path, left: str, right: str) -> bool:
    """Whether two runs have the same state, bit for bit, and the same log."""
    logs = [(folder / name / "metrics.jsonl").read_bytes() for name in (left, right)]
    states = [(folder / name / "checkpoint.safetensors").read_bytes() for name in (left, right)]
    return logs[0] == logs[1] and states[0] == states[1] and len(logs[0].splitlines()) == EPOCHS * SAMPLES // BATCH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    kills = parser.parse_args().kills
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        complete(folder, "whole")
        equal = 0
        for number in range(kills):
            kill_once(folder, "killed", rng.uniform(0, 0.15))
            complete(folder, "killed")
            equal += same(folder, "whole", "killed")
            shutil.rmtree(folder / "killed")
            sys.stdout.write(f"{number + 1} kills, {equal} runs equal\n")
            sys.stdout.flush()
    if equal != kills:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
