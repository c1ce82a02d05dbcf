"""Trains on shards that do not fit into the memory a process may have, interrupted and killed on the way.

`lstm-lower train` is started with a limit of its memory, stopped with Ctrl-C, started again, killed, and started once
more; early stopping ends it. Then the best epoch's state is evaluated on the test set, next to what Keras reaches.

Usage: python examples/long_run/train.py [--task digits] [--megabytes N] [--limit N] [--epochs 3] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tasks import BATCH, LIMIT, MEGABYTES, TASKS, write

import lstm_lower as ll

HERE = Path(__file__).parent
METRIC = "sparse_categorical_accuracy"


def limited(megabytes: int) -> None:
    """Limits the memory that a process may have for itself, and the threads for which it takes some."""
    resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def start(command: list[str], limit: int) -> subprocess.Popen[bytes]:
    """Starts the command with its limit."""
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, preexec_fn=lambda: limited(limit))  # noqa: PLW1509 (one thread)


def alive(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process runs; one that does not can still be asked for the memory it had."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def ended(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Waits for a process; its exit code, and the most memory that it had, in megabytes."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss / (1 if sys.platform == "linux" else 1024) / 1024


def interrupted(command: list[str], limit: int, checkpoint: Path, number: signal.Signals) -> float:
    """Runs until a new checkpoint is there and a little longer, then sends a signal; the most memory it had."""
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    process = start(command, limit)
    while alive(process) and not (checkpoint.exists() and checkpoint.stat().st_mtime_ns > before):
        time.sleep(0.05)
    time.sleep(0.3)
    os.kill(process.pid, number)
    code, most = ended(process)
    # 0 is a run that was over before; one that is just ending dies of the signal.
    if code not in (0, 130, -number):
        raise SystemExit(f"the run failed with exit code {code}")
    print(f"stopped with {number.name}: exit code {code}")
    return most


def main() -> None:
    """Writes the data, trains, evaluates, and keeps the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, default="digits")
    parser.add_argument("--megabytes", type=float, help="of shards")
    parser.add_argument("--limit", type=int, help="megabytes that the training process may have")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-every", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("out"), help="where to put the picture")
    options = parser.parse_args()
    limit = options.limit or LIMIT[options.task]
    keras = json.loads((HERE / "keras.json").read_text()).get(options.task)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write(options.task, options.megabytes or MEGABYTES[options.task], folder)
        model, run = HERE / f"{options.task}.onnx", folder / "run"
        command = [sys.executable, "-m", "lstm_lower", "train", str(model), "--data", str(folder / "shards")]
        command += [
            "--validation",
            str(folder / "validation.npz"),
            "--patience",
            "2",
            "--batch-size",
            str(BATCH[options.task]),
        ]
        command += ["--epochs", str(options.epochs), "--save-every", str(options.save_every), "--out", str(run)]
        checkpoint, since = run / "checkpoint.safetensors", time.monotonic()
        # The picture is drawn at the end; the package that draws needs memory, too.
        limited_command = [*command, "--no-plot"]
        most = [interrupted(limited_command, limit, checkpoint, it) for it in (signal.SIGINT, signal.SIGKILL)]
        code, last = ended(start(limited_command, limit))
        if code:
            raise SystemExit(f"the run failed with exit code {code}")
        seconds, epochs = time.monotonic() - since, len((run / "epochs.jsonl").read_text().splitlines())

        trainer = ll.Trainer(model)
        trainer.resume(run / "best.safetensors")
        scores = trainer.evaluate(folder / "test.npz")
        with np.load(folder / "test.npz") as test:
            (predicted,) = trainer.predict({"x": test["x"]}).values()
            same = float((predicted.argmax(-1) == test["y"]).mean())
        print(f"{size / 1e6:.0f} MB of shards; limit {limit} MB, at most {max(*most, last):.0f} MB resident")
        print(f"{options.task}: {epochs} epochs in {seconds:.0f} s, test accuracy {scores[METRIC]:.4f}")
        if keras is not None:
            print(f"Keras: {keras['epochs']} epochs, test accuracy {keras['accuracy']:.4f}")
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        options.out.mkdir(parents=True, exist_ok=True)
        shutil.copy(run / "loss.svg", options.out / f"{options.task}.svg")
        if abs(same - scores[METRIC]) > 1e-5:
            raise SystemExit(f"evaluate says {scores[METRIC]}, predictions say {same}")


if __name__ == "__main__":
    main()
