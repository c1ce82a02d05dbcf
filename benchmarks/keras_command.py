"""`python -m benchmarks keras`: export and training of a Keras model with a cell of one's own."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from typing import Annotated

import typer

from benchmarks.block import Case
from benchmarks.options import JsonOption, OutputOption, hand_out, parse_shape
from benchmarks.worker import contestant
from lstm_lower.cli import console

SHAPES = ("100,16,16,32", "100,32,64,128")
ROUNDS = 8


@dataclasses.dataclass(frozen=True)
class Figures:
    """What one model took.

    Attributes:
        shape: T,B,I,H.
        threads: of each.
        export_s: seconds that `from_keras` took.
        trainer_s: seconds that `Trainer` took, lowering included.
        step_ms: median milliseconds of a training step here.
        keras_ms: the same of `train_on_batch`.
        ratio: time of Keras by ours, the median over the rounds.
    """

    shape: str
    threads: int
    export_s: float
    trainer_s: float
    step_ms: float
    keras_ms: float
    ratio: float


def measured(shape: tuple[int, int, int, int], threads: int) -> Figures:
    """Times one model here and in Keras, in turns."""
    ours, theirs = (contestant("keras-cell", Case(op, shape), threads, "auto") for op in ("ours", "keras"))
    try:
        times = [(ours.times(5), theirs.times(5)) for _ in range(ROUNDS)]
    finally:
        ours.close()
        theirs.close()
    here, there = ([statistics.median(pair[i]) for pair in times] for i in (0, 1))
    return Figures(
        ",".join(map(str, shape)), threads, ours.facts["export_s"], ours.facts["trainer_s"],
        1e3 * statistics.median(here), 1e3 * statistics.median(there),
        statistics.median(b / a for a, b in zip(here, there, strict=True)),
    )  # fmt: skip


def keras_cell(
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="T,B,I,H", help="Steps, batch, inputs, units; may be repeated."),
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads of each.")] = 2,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time the export and the training of a Keras model with an LSTM cell of one's own, next to Keras."""
    with console.errors(as_json=as_json):
        found = [measured(parse_shape(text), threads) for text in shape or SHAPES]
        if not as_json:
            rows = [
                [f.shape, f"{f.export_s:.1f}", f"{f.trainer_s:.1f}", f"{f.step_ms:.1f}", f"{f.keras_ms:.1f}",
                 f"{f.ratio:.2f}"]
                for f in found
            ]  # fmt: skip
            titles = ["export s", "Trainer() s", "step ms", "Keras ms", "Keras / ours"]
            console.table("T,B,I,H", *titles, rows=rows, right=titles)
            sys.stdout.flush()
        hand_out([dataclasses.asdict(figures) for figures in found], output, as_json=as_json)
