"""The loss of a run as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstm_lower.pictures import BLUE, ORANGE, PALE, picture
from lstm_lower.records.files import own_path

if TYPE_CHECKING:
    from lstm_lower.pictures import Axes


def draw(
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
