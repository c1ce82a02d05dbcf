"""The one style of all pictures: SVG that a page shows at 830 pixels, readable on a light and on a dark page.

    with picture(Path("loss.svg"), height=3.0) as figure:
        axes = figure.subplots()
        axes.plot(losses, color=BLUE)

An SVG holds each colour once for light pages and once for dark ones, and the browser chooses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lstm_lower.extras import needed_by
from lstm_lower.records.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes  # noqa: PLC0414 (for those who draw)
    from matplotlib.figure import Figure

# As many inches as a picture is wide on a page of 830 pixels.
WIDTH = 8.6

PAPER, INK, GREY, FAINT = "#ffffff", "#1f2429", "#6d7681", "#d9dee3"
BLUE, PALE, ORANGE, RED, GREEN = "#1b6ca8", "#9cbdd6", "#c66a06", "#b3362d", "#2c7a4b"
# A box's face -> its edge is INK or GREY, its text INK.
BOX, BOX_BLUE, BOX_ORANGE, BOX_GREEN = "#f1f4f7", "#d7e7f4", "#fbe3c8", "#d8eedf"

# Colour on a light page -> on a dark one.
DARK = {
    PAPER: "#15191e",
    INK: "#e4e8ec",
    GREY: "#98a2ac",
    FAINT: "#343b43",
    BLUE: "#5aaae8",
    PALE: "#3a5d7a",
    ORANGE: "#f0a04b",
    RED: "#f07e74",
    GREEN: "#63bd86",
    BOX: "#242b32",
    BOX_BLUE: "#1d3f5c",
    BOX_ORANGE: "#5c3a12",
    BOX_GREEN: "#1d4a30",
}

_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.facecolor": PAPER,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.prop_cycle": f"cycler(color={[BLUE, ORANGE, RED, GREEN, GREY]})",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.facecolor": PAPER,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.facecolor": PAPER,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
    "svg.hashsalt": "lstm-lower",
}


@contextlib.contextmanager
def picture(*paths: Path, height: float, width: float = WIDTH) -> Iterator[Figure]:
    """An empty figure in the style, which is written at the end of the block.

    Args:
        *paths: .svg or .png files; a .png is for a light page.
        height: inches.
        width: inches.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    with needed_by("a picture"):
        import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        for path in paths:
            with atomic_path(path) as temporary:
                figure.savefig(temporary, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
                if path.suffix == ".svg":
                    temporary.write_text(_for_dark_pages(temporary.read_text(encoding="utf-8")), encoding="utf-8")


def _for_dark_pages(svg: str) -> str:
    """An SVG of matplotlib with what a dark page shows in place of each of our colours."""
    rules = "".join(
        f'[style*="{what}: {light}"] {{ {what}: {dark} !important }}\n'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
        if f"{what}: {light}" in svg
    )
    head, closing, rest = svg.partition("<defs>")
    style = f'<style type="text/css">@media (prefers-color-scheme: dark) {{\n{rules}}}</style>\n'
    return f"{head}{closing}\n{style}{rest}"
