"""`python -m benchmarks trainer`: a trainer's step against the bare call with everything bound, in turns."""

from __future__ import annotations

import statistics
import time
from typing import Annotated

import numpy as np
import typer

import lstm_lower as ll
from benchmarks.options import JsonOption, OutputOption, hand_out
from benchmarks.processes import ROOT
from lstm_lower.cli import console

MODEL = ROOT / "examples" / "graphs" / "char_lstm_train.onnx"
BATCHES = (4, 32, 128)


def ratios(rounds: int, steps: int, batch: int) -> list[float]:
    """Per round, the time of `steps` steps of the trainer divided by that of the bare call."""
    with np.load(MODEL.with_suffix(".npz")) as recorded:
        feeds = {name[3:]: recorded[name] for name in recorded.files if name.startswith("in:")}
    data = {name: np.tile(feeds.pop(name), (1, batch // 4)) for name in ("ids:0", "labels:0")}
    rate = float(feeds.pop("learning_rate:0"))
    trainer = ll.Trainer(MODEL, initial_values=feeds, learning_rate=rate)
    trainer.step(data)
    bound = trainer._bindings.of(())
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


def trainer(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of both.")] = 15,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps of each in a turn.")] = 40,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time a trainer's step against the bare onnxruntime call; the median of the rounds."""
    figures = [{"batch": batch, "ratio": statistics.median(ratios(rounds, steps, batch))} for batch in BATCHES]
    if not as_json:
        rows = [[row["batch"], f"{row['ratio']:.3f}"] for row in figures]
        console.table("batch", "trainer step / bare run", rows=rows, right=["trainer step / bare run"])
    hand_out(figures, output, as_json=as_json)
