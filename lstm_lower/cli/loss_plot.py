"""The loss of a run as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lstm_lower.extras import needed_by
from lstm_lower.records.files import atomic_path


def draw(lines: Sequence[dict[str, Any]], folder: Path) -> None:
    """Writes `loss.png` and `loss.svg`.

    Args:
        lines: with `step` and `loss`; a loss that is not finite is `None`.
        folder: where to.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    with needed_by("the plot", instead=", or --no-plot"):
        from matplotlib.figure import Figure
    steps = np.array([line["step"] for line in lines])
    losses = np.array([line["loss"] for line in lines], np.float64)
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    # A picture has no room for more points, and a file of vectors should not hold them.
    every = -(-len(losses) // 4000)
    label = "loss of the step" if every == 1 else f"loss of every {every}th step"
    axes.plot(steps[::every], losses[::every], linewidth=0.6, alpha=0.5, label=label)
    window = max(1, len(losses) // 50)
    smooth = losses
    if window > 1:
        smooth = np.convolve(losses, np.full(window, 1 / window), "valid")
        middle = steps[(window - 1) // 2 :][: len(smooth)]
        axes.plot(middle[::every], smooth[::every], linewidth=1.5, label=f"mean of {window} steps")
    finite = smooth[np.isfinite(smooth)]
    if finite.size and finite.min() > 0 and finite.max() > 20 * finite.min():
        axes.set_yscale("log")
    axes.set(xlabel="step", ylabel="loss")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    for name in ("loss.png", "loss.svg"):
        with atomic_path(folder / name) as temporary:
            figure.savefig(temporary, dpi=120)
