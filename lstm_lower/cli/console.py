"""Printing for all commands: tables for people on standard output, JSON for programs, errors on standard error."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lstm_lower.errors import LstmLowerError, LstmLowerWarning, shown
from lstm_lower.plugins import load

# Between lines of one text, of which the next one is not indented.
_LINES = re.compile(r"(?<=.)(\n+)(?=\S)")


class _Console(Console):
    """A console that shows what names out of files hold, and sends a terminal none of it.

    Further lines of a text are indented, so that a name with lines in it cannot pass for another message.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(_LINES.sub(r"\1  ", shown(text, lines=True)), **options)


class _StandardOutput:
    """Standard output, whose errors name it; if it is closed, nothing is printed."""

    def __init__(self) -> None:
        self._stream = io.StringIO() if sys.stdout is None else sys.stdout

    def write(self, text: str) -> int:
        with of_standard_output():
            return self._stream.write(text)

    def flush(self) -> None:
        with of_standard_output():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _StandardError:
    """Standard error; where nobody reads it any more, as of a terminal that was closed, nothing is told."""

    def __init__(self) -> None:
        self._stream = io.StringIO() if sys.stderr is None else sys.stderr

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def of_standard_output() -> Iterator[None]:
    """Says of errors of the operating system, which name no stream, that standard output has them."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def out() -> Console:
    """Standard output; made anew, since tests and pipes replace the stream."""
    return _Console(file=cast("IO[str]", _StandardOutput()), highlight=False, soft_wrap=True, emoji=False)


def err() -> Console:
    """Standard error: progress and errors."""
    return _Console(file=cast("IO[str]", _StandardError()), highlight=False, soft_wrap=True, emoji=False)


def print_json(data: Any) -> None:
    """Prints one JSON document, in ASCII; NaN, infinities and whatever else JSON lacks become strings."""
    stream = _StandardOutput()
    stream.write(json.dumps(_plain(data), indent=2, allow_nan=False) + "\n")
    stream.flush()


def _plain(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(item) for item in data]
    return data if isinstance(data, (str, int, float, type(None))) else str(data)


def table(*columns: str, rows: Sequence[Sequence[object]], title: str | None = None, right: Sequence[str] = ()) -> None:
    """Prints a table; columns named in `right` are aligned to the right."""
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(escape(shown(str(cell))) for cell in row))
    console = out()
    # In a pipe no width is known, and cut cells would be lost.
    if not console.is_terminal:
        console.width = 100_000
    console.print(grid)


@contextlib.contextmanager
def errors(*, as_json: bool = False, plugins: Sequence[str] | None = None, code: int = 1) -> Iterator[None]:
    """Turns an error that the user can mend into one message and an exit code; others keep their traceback.

    What there is to know of a model is printed as lines, too, each once, however often its file is read.

    Args:
        as_json: print the error as JSON, too.
        plugins: modules and files with ops of others, which are imported first.
        code: the exit code.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", LstmLowerWarning)
            warnings.showwarning = _warn_once()
            load(plugins or ())
            yield
    except BrokenPipeError:
        # Whoever read the output wants no more of it.
        raise
    except (LstmLowerError, OSError, MemoryError) as error:
        message = _message(error) or "out of memory"
        if as_json:
            print_json({"error": {"type": type(error).__name__, "message": message}})
        err().print(f"[bold red]error:[/] {escape(message)}")
        raise typer.Exit(code) from error


def _message(error: Exception) -> str:
    """The text of an error; of the operating system's the file and what is wrong with it, without a number."""
    if isinstance(error, FileExistsError):
        return f"{error.filename}: a folder is required, got a file"
    if isinstance(error, OSError) and error.strerror:
        told = f"{error.strerror[0].lower()}{error.strerror[1:]}"
        return told if error.filename is None else f"{error.filename}: {told}"
    return str(error)


def _warn_once() -> Callable[..., None]:
    told: set[str] = set()

    def warn(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in told:
            told.add(str(message))
            err().print(f"[bold yellow]warning:[/] {escape(str(message))}")

    return warn


def shape_text(shape: Sequence[object] | None) -> str:
    """`20xbatchx32`; `?` where nothing is known."""
    if shape is None:
        return "?"
    return "x".join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def error_text(value: float | None) -> str:
    """An error in three digits; `-` where there is none."""
    return "-" if value is None else f"{value:.2e}"


def verdict_text(verdict: str) -> str:
    """A verdict on all of a comparison, in its colour."""
    colour = {"passed": "bold green", "failed": "bold red"}.get(verdict, "bold yellow")
    return f"[{colour}]{verdict}[/]"


def bytes_text(count: int) -> str:
    """A size in the unit that suits it."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
