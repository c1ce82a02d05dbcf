"""`python -m benchmarks keras`: a layer over a cell of one's own, exported and trained next to Keras.

Needs the extra [tensorflow]. Keras and the exported step take turns, each in a process of its own, since thread pools
disturb each other within one.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.block import Case
from benchmarks.options import JsonOption, OutputOption, hand_out, parse_shape
from benchmarks.worker import contestant
from lstm_lower.cli import console

SHAPES = ("100,16,16,32", "100,32,64,128")
CLASSES, ROUNDS = 10, 8


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


def lstm_cell(units: int) -> Any:
    """An LSTM cell as one writes it oneself."""
    import keras

    class Cell(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.state_size, self.output_size = [units, units], units

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], 4 * units), name="kernel")
            self.recurrent = self.add_weight(shape=(units, 4 * units), name="recurrent")
            self.bias = self.add_weight(shape=(4 * units,), name="bias")

        def call(self, x: Any, states: Any) -> Any:
            h, c = states
            i, f, g, o = keras.ops.split(x @ self.kernel + h @ self.recurrent + self.bias, 4, axis=-1)
            c = keras.ops.sigmoid(f) * c + keras.ops.sigmoid(i) * keras.ops.tanh(g)
            h = keras.ops.sigmoid(o) * keras.ops.tanh(c)
            return h, [h, c]

    return Cell()


def made(case: Case, threads: int, _: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A contestant: one step of training, of the exported model or, as the op `keras`, of Keras itself."""
    import time

    import keras
    import tensorflow as tf

    import lstm_lower as ll
    from lstm_lower.runtime.session import default_options

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    T, B, I, H = case.shape  # noqa: E741
    keras.utils.set_random_seed(0)
    layers = [keras.layers.RNN(lstm_cell(H)), keras.layers.Dense(CLASSES, activation="softmax")]
    model: Any = keras.Sequential([keras.Input((T, I)), *layers])
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy")
    random = np.random.default_rng(0)
    x, y = random.standard_normal((B, T, I)).astype(np.float32), random.integers(0, CLASSES, B)
    if case.op == "keras":
        batch = tf.constant(x), tf.constant(y)
        return lambda: model.train_on_batch(*batch), {}
    options = default_options()
    options.intra_op_num_threads = threads
    from lstm_lower.keras.exporter import from_keras

    start = time.perf_counter()
    step = from_keras(model)
    middle = time.perf_counter()
    trainer = ll.Trainer(step, session_options=options)
    facts = {"export_s": middle - start, "trainer_s": time.perf_counter() - middle}
    return lambda: trainer.step({"x": x, "y": y}).loss, facts


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
