"""The command line, `lstm-lower`: one file per command beside this one."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.core

import lstm_lower
from lstm_lower.cli import console
from lstm_lower.cli.bench_command import bench
from lstm_lower.cli.check_command import check
from lstm_lower.cli.commands import command
from lstm_lower.cli.diff_command import TROUBLE, diff
from lstm_lower.cli.export_command import export
from lstm_lower.cli.gradient_command import gradient
from lstm_lower.cli.head_command import head, split
from lstm_lower.cli.inspect_command import inspect
from lstm_lower.cli.lora_command import lora
from lstm_lower.cli.lower_command import lower
from lstm_lower.cli.merge_command import merge
from lstm_lower.cli.ops_command import ops
from lstm_lower.cli.optimize_command import optimize
from lstm_lower.cli.report_command import report
from lstm_lower.cli.run_command import run
from lstm_lower.cli.train_command import train
from lstm_lower.records.files import inputs_protected, protect

# Options that name what a command writes; whatever else is a path is read.
OUTPUTS = frozenset({"output", "out", "plot", "trace", "node_data", "dump_passes", "back"})

# Signals that ask a process to end, Ctrl-C apart: of a machine that shuts down, and of a terminal that is closed.
_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class _Commands(typer.core.TyperGroup):
    """The commands; a disk that is full when one prints its results, or help, is one message, too."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with console.errors(), console.of_standard_output():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _signals_end(), console.errors(), console.of_standard_output():
            return super().invoke(ctx)


class _Command(typer.core.TyperCommand):
    """A command, which writes over none of the files that it was given to read."""

    def invoke(self, ctx: Any) -> Any:
        with inputs_protected():
            for name, given in ctx.params.items():
                if name not in OUTPUTS:
                    several = given if isinstance(given, (list, tuple)) else [given]
                    protect(*(Path(value) for value in several if isinstance(value, (str, Path))))
            return super().invoke(ctx)


@contextlib.contextmanager
def _signals_end() -> Iterator[None]:
    """Ends a command as an error does when a signal asks for it: nothing half-written stays; exit code 128 + signal.

    A signal that is ignored, as `nohup` has it, stays so. A second one ends the process at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: handler for number in _ENDINGS if (handler := signal.getsignal(number)) != signal.SIG_IGN}

    def end(number: int, _: object) -> NoReturn:
        signal.signal(number, before[signal.Signals(number)])
        raise SystemExit(128 + number)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


for _each in (
    lower,
    gradient,
    lora,
    head,
    split,
    merge,
    export,
    inspect,
    run,
    train,
    check,
    bench,
    ops,
    optimize,
    report,
):
    app.command(cls=_Command)(command(_each))
app.command(cls=_Command)(command(diff, code=TROUBLE))
