"""The command line of the benchmarks, `python -m benchmarks`, in a checkout."""

from __future__ import annotations

import typer

from benchmarks.device import device
from benchmarks.distributed import distributed, scaling
from benchmarks.dynamic_rnn import dynamic_rnn
from benchmarks.foreign_loops import foreign
from benchmarks.gradient import gradient
from benchmarks.importing import importing
from benchmarks.keras_cell import keras_cell
from benchmarks.lowering import lowering
from benchmarks.pages import pages
from benchmarks.providers import providers
from benchmarks.race_command import race
from benchmarks.tables import tables
from benchmarks.torch_step import torch_step
from benchmarks.trainer import trainer

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
app.command()(device)
app.command()(distributed)
app.command()(scaling)
app.command()(foreign)
app.command("dynamic-rnn")(dynamic_rnn)
app.command("torch")(torch_step)
app.command()(gradient)
app.command("keras")(keras_cell)
app.command()(trainer)
app.command()(pages)
app.command()(providers)
app.command()(tables)

if __name__ == "__main__":
    app()
