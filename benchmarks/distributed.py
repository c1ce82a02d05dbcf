"""`python -m benchmarks distributed`: a step on workers against the same step in one process, one thread each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import typer

import lstm_lower as ll
from benchmarks.options import JsonOption, OutputOption, hand_out
from lstm_lower.cli import console
from lstm_lower.records import state
from lstm_lower.runtime.training.parallel.trainer import DistributedTrainer

# Steps, rows, and sizes of input and state: one that is all overhead, and one that is worth spreading.
SHAPES = ((10, 8, 8, 8), (50, 64, 128, 256))

_LSTM = """
<ir_version: 8, opset_import: ["" : 18]>
lstm (float[{T},B,{I}] x, float[1,{G},{I}] w, float[1,{G},{H}] r) => (float[1,B,{H}] y)
{{ h, y, c = LSTM <hidden_size = {H}> (x, w, r) }}
"""


def step_of(T: int, I: int, H: int) -> ir.Model:  # noqa: E741
    """A training step of an LSTM, its loss the mean squared error of the last state."""
    model = ir.from_proto(onnx.parser.parse_model(_LSTM.format(T=T, I=I, H=H, G=4 * H)))
    for name, shape in (("w", (1, 4 * H, I)), ("r", (1, 4 * H, H))):
        values = np.random.default_rng(0).standard_normal(shape, np.float32) / np.float32(H)
        state.set_initial_value(model, name, values)
    return ll.from_onnx(model, "mse", "adam")


def milliseconds(step: Callable[[Any], object], feeds: Any, seconds: float) -> float:
    """The median time of a step."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    step(feeds)
    while len(found) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        step(feeds)
        found.append(1000 * (time.perf_counter() - start))
    return statistics.median(found)


def distributed(
    workers: Annotated[list[int] | None, typer.Option("--workers", min=1, help="Of so many, each by itself.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="Of each measurement.")] = 5.0,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time a step on workers against one process; one thread each."""
    figures: list[dict[str, Any]] = []
    for T, rows, I, H in SHAPES:  # noqa: E741
        step, random = step_of(T, I, H), np.random.default_rng(1)
        feeds = {
            "x": random.standard_normal((T, rows, I), np.float32),
            "target": random.standard_normal((1, rows, H), np.float32),
        }
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        shape = f"{T},{rows},{I},{H}"
        alone = milliseconds(ll.Trainer(step, session_options=options).step, feeds, seconds)
        figures.append({"shape": shape, "workers": 0, "ms": alone, "starting": 0.0})
        for count in workers or (1, 2, 4):
            start = time.perf_counter()
            with DistributedTrainer(ll.Trainer(step), count, reduction="mean") as spread:
                started = time.perf_counter() - start
                found = milliseconds(spread.step, feeds, seconds)
            figures.append({"shape": shape, "workers": count, "ms": found, "starting": started})
    if not as_json:
        shown = [
            [row["shape"], row["workers"] or "none", f"{row['ms']:.1f}", f"{row['starting']:.1f}"] for row in figures
        ]
        console.table("T,B,I,H", "workers", "ms a step", "s to start", rows=shown, right=["ms a step", "s to start"])
    hand_out(figures, output, as_json=as_json)


def scaling(
    seconds_per_worker: Annotated[float, typer.Option("--per-worker", help="What calling a worker costs.")] = 5e-3,
    bandwidth: Annotated[float, typer.Option("--bandwidth", help="Bytes a second, each way.")] = 1.25e9,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Work out on paper how many times as fast a step is on many machines (docs/distributed.md)."""
    figures = []
    for millions, seconds in ((1, 0.5), (10, 5.0), (100, 50.0)):
        moved = 4e6 * millions
        row: dict[str, Any] = {"parameters": f"{millions} million", "step": seconds, "MB": 2 * moved / 1e6}
        for count in (1, 2, 4, 10, 30, 100):
            took = seconds / count + 2 * moved * (count - 1) / count / bandwidth + seconds_per_worker * count
            row[str(count)] = seconds / took
        figures.append(row)
    if not as_json:
        rows = [[f"{value:.1f}" if isinstance(value, float) else value for value in row.values()] for row in figures]
        console.table(*figures[0], rows=rows, right=[*figures[0]][1:])
    hand_out(figures, output, as_json=as_json)
