"""The command line, `lstm-lower`: one file per command beside this one."""

from __future__ import annotations

import io
import sys
from typing import Annotated, Any

import typer
import typer.core

import lstm_lower
from lstm_lower.cli import console
from lstm_lower.cli.bench_command import bench
from lstm_lower.cli.check_command import check
from lstm_lower.cli.diff_command import diff
from lstm_lower.cli.export_command import export
from lstm_lower.cli.gradient_command import gradient
from lstm_lower.cli.inspect_command import inspect
from lstm_lower.cli.lower_command import lower
from lstm_lower.cli.ops_command import ops
from lstm_lower.cli.optimize_command import optimize
from lstm_lower.cli.report_command import report
from lstm_lower.cli.run_command import run
from lstm_lower.cli.train_command import train


class _Commands(typer.core.TyperGroup):
    """The commands; a disk that is full when one prints its results, or help, is one message, too."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with console.errors(), console.of_standard_output():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with console.errors(), console.of_standard_output():
            return super().invoke(ctx)


app = typer.Typer(
    name="lstm-lower",
    cls=_Commands,
    help="Lowers recurrent training ops, forward and backward, to standard ONNX that stock onnxruntime runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(lstm_lower.__version__)
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Lowers recurrent training ops, forward and backward, to standard ONNX that stock onnxruntime runs."""
    # Names in models are of any letters and paths of any bytes, whatever the terminal can show.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


app.command()(lower)
app.command()(gradient)
app.command()(export)
app.command()(inspect)
app.command()(run)
app.command()(train)
app.command()(check)
app.command()(bench)
app.command()(ops)
app.command()(optimize)
app.command()(report)
app.command()(diff)
