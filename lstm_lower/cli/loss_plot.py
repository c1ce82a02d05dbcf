"""The loss of a run as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError


def draw(lines: Sequence[dict[str, Any]], folder: Path) -> None:
    """Writes `loss.png` and `loss.svg`.

    Args:
        lines: with `step` and `loss`.
        folder: where to.

    Raises:
        InvalidInputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidInputError(
            "the plot requires matplotlib: pip install 'lstm-lower[train]', or --no-plot"
        ) from error
    steps = np.array([line["step"] for line in lines])
    losses = np.array([line["loss"] for line in lines])
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, losses, linewidth=0.6, alpha=0.5, label="loss of the step")
    window = max(1, len(losses) // 50)
    if window > 1:
        mean = np.convolve(losses, np.full(window, 1 / window), "valid")
        axes.plot(steps[window - 1 :], mean, linewidth=1.5, label=f"mean of {window} steps")
    axes.set(xlabel="step", ylabel="loss")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(folder / "loss.png", dpi=120)
    figure.savefig(folder / "loss.svg")
