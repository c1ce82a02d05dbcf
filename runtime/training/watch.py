"""What a run watches: whether a value gets better from epoch to epoch."""

from __future__ import annotations

import math
from typing import Literal

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.run import Logs

Mode = Literal["min", "max"]

LOSSES = ("loss", "val_loss")


class Watch:
    """Whether a value gets better from epoch to epoch.

    Attributes:
        monitor: name in the epoch's logs.
        mode: which way is better.
        min_delta: by how much it must get better to count.
        best: the best value, or `None`.
        waited: epochs since.
    """

    def __init__(self, monitor: str, mode: Mode | None = None, min_delta: float = 0.0) -> None:
        """Starts without a value.

        Raises:
            InvalidInputError: it does not go without saying which way is better.
        """
        if mode is None and monitor not in LOSSES:
            raise InvalidInputError(f"mode requires 'min' or 'max' for the monitor '{monitor}', got none")
        if mode not in (None, "min", "max"):
            raise InvalidInputError(f"mode requires 'min' or 'max', got {mode!r}")
        if not (math.isfinite(min_delta) and min_delta >= 0):
            raise InvalidInputError(f"min_delta requires a number that is not negative, got {min_delta}")
        self.monitor, self.mode, self.min_delta = monitor, mode or "min", min_delta
        self.best: float | None = None
        self.waited = 0

    def better(self, logs: Logs) -> bool:
        """Takes an epoch's value; NaN is not better."""
        value = logs[self.monitor]
        sign = 1.0 if self.mode == "min" else -1.0
        improved = math.isfinite(value) and (self.best is None or sign * value < sign * self.best - self.min_delta)
        self.best, self.waited = (value, 0) if improved else (self.best, self.waited + 1)
        return improved

    def check(self, names: list[str]) -> None:
        """Raises an InvalidInputError if the run's epochs have no such value."""
        if self.monitor not in names:
            raise InvalidInputError(f"monitor requires one of {names}, got '{self.monitor}'")
