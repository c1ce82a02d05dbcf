"""Kills `lstm-lower train` at random moments and checks that the resumed run equals one that was left alone.

The run reads shards, evaluates after each epoch, keeps the best one, lowers its learning rate and may end early. A
moment lies anywhere between the start of the process and its end, most of them while it trains and evaluates; some are
chosen so that a checkpoint, or the best one, is just being written. Only kills that met a living process count. A run
is killed up to three times before it may end.

Usage: python tests/kill_and_resume.py [--kills 50] [--workers 2]
"""

from __future__ import annotations

import argparse
import collections
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples" / "graphs" / "char_lstm_train.onnx"
EPOCHS, SAMPLES, BATCH = 8, 64, 4
# What the command line adds to each run.
MORE: list[str] = []


def write_data(folder: Path) -> None:
    """Random windows of characters, and the model's initial values."""
    with np.load(MODEL.with_suffix(".npz")) as recorded:
        initial = {
            name[3:]: recorded[name] for name in recorded.files if name.startswith("in:") and name[3:4] not in "il"
        }
    ids = np.random.default_rng(2).integers(0, initial["dense_b:0"].size, (21, SAMPLES)).astype(np.int32)
    np.savez(folder / "data.npz", **{"ids:0": ids[:-1], "labels:0": ids[1:]})  # type: ignore[arg-type]
    (folder / "shards").mkdir()
    for number, part in enumerate(np.array_split(ids, 5, axis=1)):
        np.savez(folder / "shards" / f"{number}.npz", **{"ids:0": part[:-1], "labels:0": part[1:]})  # type: ignore[arg-type]
    np.savez(folder / "initial.npz", **initial)


def command(folder: Path, name: str) -> list[str]:
    options = {
        "--data": folder / "shards",
        "--validation": folder / "data.npz",
        "--initial": folder / "initial.npz",
        "--out": folder / name,
        "--epochs": EPOCHS,
        "--batch-size": BATCH,
        "--learning-rate": 0.5,
        "--schedule": "cosine",
        "--warmup": 10,
        "--patience": EPOCHS,
        "--window": 2,
        "--save-every": 5,
    }
    words = [str(word) for pair in options.items() for word in pair]
    return [sys.executable, "-m", "lstm_lower", "train", str(MODEL), *words, *MORE, "--no-plot"]


def complete(folder: Path, name: str) -> None:
    subprocess.run(command(folder, name), cwd=ROOT, check=True, capture_output=True)


def kill_once(folder: Path, name: str, moment: float, *, training: bool = True) -> bool:
    """Starts a run and kills it.

    Args:
        folder: where the run lies.
        name: its name.
        moment: seconds after the first new checkpoint, or after the start.
        training: whether the moment counts from the first new checkpoint.

    Returns:
        Whether the process was alive when it was killed.
    """
    process = subprocess.Popen(command(folder, name), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if training:
        wait_for_checkpoint(process, folder / name)
    time.sleep(moment)
    process.kill()
    return process.wait() == -signal.SIGKILL


def kill_while(folder: Path, name: str, file: str) -> bool:
    """Starts a run and kills it while a file is being written.

    Args:
        folder: where the run lies.
        name: its name.
        file: the file's name.

    Returns:
        Whether the process was alive when it was killed.
    """
    process = subprocess.Popen(command(folder, name), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not any((folder / name).glob(f".{file}.*.lstm-lower/*")):
        time.sleep(0.0002)
    process.kill()
    return process.wait() == -signal.SIGKILL


def wait_for_checkpoint(process: subprocess.Popen[bytes], run: Path) -> None:
    """Waits until a run has written a new checkpoint, or has ended."""
    checkpoint = run / "checkpoint.safetensors"
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if checkpoint.exists() and checkpoint.stat().st_mtime_ns > before:
            return
        time.sleep(0.001)


def durations(folder: Path, name: str) -> tuple[float, float]:
    """Does a whole run, and returns seconds until its first checkpoint, and from there to its end."""
    start = time.monotonic()
    process = subprocess.Popen(command(folder, name), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_checkpoint(process, folder / name)
    middle = time.monotonic()
    if process.wait() != 0:
        raise SystemExit("the run that nobody kills failed")
    return middle - start, time.monotonic() - middle


def same(folder: Path, left: str, right: str) -> bool:
    """Whether two runs have the same state, bit for bit, and the same log."""
    files = ("metrics.jsonl", "epochs.jsonl", "checkpoint.safetensors", "best.safetensors")
    ours, theirs = ([(folder / name / file).read_bytes() for file in files] for name in (left, right))
    return ours == theirs and [len(log.splitlines()) for log in ours[:2]] == [EPOCHS * SAMPLES // BATCH, EPOCHS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--workers", type=int, help="processes of every run, which are to end with it")
    options = parser.parse_args()
    kills = options.kills
    if options.workers is not None:
        MORE.extend(["--workers", str(options.workers)])
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        start, training = durations(folder, "whole")
        sys.stdout.write(f"a run starts in {start:.1f} s and trains for {training:.1f} s\n")
        killed = runs = equal = 0
        phases: collections.Counter[str] = collections.Counter()
        while killed < kills:
            met = 0
            for _ in range(rng.randint(1, 3)):
                phase = rng.choices(("start", "training", "checkpoint", "best"), (2, 5, 2, 1))[0]
                if phase in ("start", "training"):
                    moment = rng.uniform(0, start if phase == "start" else training)
                    hit = kill_once(folder, "killed", moment, training=phase == "training")
                else:
                    hit = kill_while(folder, "killed", f"{phase}.safetensors")
                met += hit
                phases[phase] += hit
            killed += met
            complete(folder, "killed")
            runs += 1
            equal += same(folder, "whole", "killed")
            shutil.rmtree(folder / "killed")
            where = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()) if count)
            sys.stdout.write(f"{killed} kills ({where}); {equal} of {runs} runs equal\n")
            sys.stdout.flush()
    if equal != runs:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
