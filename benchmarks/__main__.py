"""The command line of the benchmarks, `python -m benchmarks`, in a checkout."""

from __future__ import annotations

import typer

from benchmarks import dynamic_rnn, torch_step
from benchmarks.curves import curves
from benchmarks.device import device
from benchmarks.distributed import distributed, scaling
from benchmarks.foreign_loops import foreign
from benchmarks.gradient import gradient
from benchmarks.importing import importing
from benchmarks.keras_command import keras_cell
from benchmarks.lowering import lowering
from benchmarks.pages import pages
from benchmarks.providers import providers
from benchmarks.race_command import race, step_race
from benchmarks.tables import tables
from benchmarks.torch_import import import_torch
from benchmarks.trainer import trainer
from benchmarks.web import web

app = typer.Typer(
    name="python -m benchmarks",
    help="Measures time and memory, and writes the pages that show them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(race)
app.command()(lowering)
app.command("import")(importing)
app.command()(curves)
app.command()(import_torch)
app.command()(device)
app.command()(distributed)
app.command()(scaling)
app.command()(foreign)
app.command("dynamic-rnn", help="Time a training step of `dynamic_rnn` from its .meta file next to TensorFlow's.")(
    step_race(dynamic_rnn)
)
app.command("torch", help="Time a training step of PyTorch classifiers next to PyTorch, onnx-ad and onnxsim.")(
    step_race(torch_step)
)
app.command()(gradient)
app.command("keras")(keras_cell)
app.command()(trainer)
app.command()(pages)
app.command()(providers)
app.command()(tables)
app.command()(web)

if __name__ == "__main__":
    app()
