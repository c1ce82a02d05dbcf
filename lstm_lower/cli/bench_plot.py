"""The times of `lstm-lower bench` as a picture."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from lstm_lower.errors import InvalidInputError, shown
from lstm_lower.extras import needed_by
from lstm_lower.pictures import BLUE, INK, ORANGE, PALE, picture

if TYPE_CHECKING:
    from lstm_lower.runtime.measuring.results import Bench

_KINDS = (".png", ".svg")
# By form: what somebody has now, what is right, what is fast.
_COLOURS = {"original": ORANGE, "lowered": PALE, "optimised": BLUE}


def check_plot(path: Path) -> None:
    """Checks, before anything is timed, that there will be a picture.

    Raises:
        InvalidInputError: the file's name ends neither in .png nor in .svg.
        MissingPackageError: matplotlib is not installed.
    """
    if path.suffix not in _KINDS:
        raise InvalidInputError(f"--plot requires a file that ends in {' or '.join(_KINDS)}, got {path}")
    with needed_by("--plot"):
        importlib.import_module("matplotlib")


def draw(found: Bench, path: Path, title: str) -> None:
    """Writes a picture: a bar per contestant up to its fastest run, a line on to the median.

    Args:
        found: what was measured.
        path: a .png or .svg file.
        title: the model's name.

    Raises:
        InvalidInputError: nothing was timed.
        MissingPackageError: matplotlib is not installed.
    """
    check_plot(path)
    if not found.timed:
        raise InvalidInputError("--plot requires a contestant that was timed, got none")
    rows = found.timed
    with picture(path, height=1.1 + 0.36 * len(rows)) as figure:
        axes = figure.subplots()
        places = range(len(rows))
        minima = [1e3 * figures.minimum for _, figures in rows]
        medians = [1e3 * figures.median for _, figures in rows]
        axes.barh(places, minima, height=0.62, color=[_COLOURS[result.form] for result, _ in rows])
        axes.hlines(places, minima, medians, color=INK, linewidth=1)
        for place, least, middle in zip(places, minima, medians, strict=True):
            axes.annotate(f"{least:.3g}", (middle, place), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(places, [result.name for result, _ in rows])
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlim(left=0)
        axes.grid(visible=False)
        threads = f"{found.threads} thread{'s' if found.threads > 1 else ''}"
        axes.set_xlabel(
            f"milliseconds a run, {threads}; lower is better; bar: fastest run, thin line: up to the median"
        )
        axes.set_title(shown(title), parse_math=False)
