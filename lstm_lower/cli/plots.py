"""Pictures of what commands measured: the times of bench, the loss of a run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstm_lower.errors import InvalidInputError, shown
from lstm_lower.extras import needed_by
from lstm_lower.pictures import BLUE, INK, ORANGE, PALE, picture
from lstm_lower.records.files import own_path

if TYPE_CHECKING:
    from lstm_lower.pictures import Axes
    from lstm_lower.runtime.measuring.results import Bench


# The times of `lstm-lower bench` as a picture.


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


def draw_times(found: Bench, path: Path, title: str) -> None:
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


# The loss of a run as a picture.


def draw_losses(
    lines: Sequence[dict[str, Any]],
    folder: Path,
    epochs: Sequence[Mapping[str, float]] = (),
    batches: int | None = None,
) -> None:
    """Writes `loss.png` and `loss.svg`.

    Args:
        lines: with `step` and `loss`; a loss that is not finite is `None`.
        folder: where to.
        epochs: with `val_loss`, where there was a validation.
        batches: steps per epoch; `None` where it is not the same in all.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    steps = np.array([line["step"] for line in lines])
    losses = np.array([line["loss"] for line in lines], np.float64)
    with picture(*(own_path(folder, name) for name in ("loss.png", "loss.svg")), height=3.5) as figure:
        _curves(figure.subplots(), steps, losses, epochs, batches)


def _curves(
    axes: Axes,
    steps: NDArray[np.int64],
    losses: NDArray[np.float64],
    epochs: Sequence[Mapping[str, float]],
    batches: int | None,
) -> None:
    """The loss of each step, its running mean, and the validation's."""
    # A picture has no room for more points, and a file of vectors should not hold them.
    every = max(1, -(-len(losses) // 1500))
    label = "loss of the step" if every == 1 else f"loss of one step in {every}"
    axes.plot(steps[::every], losses[::every], color=PALE, linewidth=0.8, label=label)
    window = max(1, len(losses) // 50)
    smooth = losses
    if window > 1:
        smooth = np.convolve(losses, np.full(window, 1 / window), "valid")
        middle = steps[(window - 1) // 2 :][: len(smooth)]
        axes.plot(middle[::every], smooth[::every], color=BLUE, label=f"mean of {window} steps")
    validated = [logs for logs in epochs if "val_loss" in logs]
    if validated and batches is not None:
        places = [logs["epoch"] * batches for logs in validated]
        axes.plot(
            places, [logs["val_loss"] for logs in validated], "o-", color=ORANGE, markersize=4, label="validation"
        )
    finite = smooth[np.isfinite(smooth)]
    if finite.size and finite.min() > 0 and finite.max() > 20 * finite.min():
        axes.set_yscale("log")
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
