"""Where a run is, and what came of its epochs; what a checkpoint keeps of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Self

Logs = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Best:
    """The best epoch so far.

    Attributes:
        value: what was watched.
        epoch: the epoch's number, counted from 1.
    """

    value: float
    epoch: int


@dataclasses.dataclass
class History:
    """What `fit` returns.

    Attributes:
        epochs: a mapping per epoch: `epoch` (counted from 1), the means of `loss` and metrics, `learning_rate`, and of
            the validation `val_loss` and `val_<metric>`.
        stopped: why the run ended before its last epoch, or `None`.
        best: the best epoch of what is watched.
    """

    epochs: list[Logs] = dataclasses.field(default_factory=list)
    stopped: str | None = None
    best: Best | None = None

    def __getitem__(self, name: str) -> list[float]:
        """One value of all epochs, such as `val_loss`; NaN in epochs without it."""
        return [logs.get(name, math.nan) for logs in self.epochs]


@dataclasses.dataclass
class Progress:
    """Where a run is.

    Attributes:
        epoch: the epoch it is in, counted from 0.
        batch: the next batch of that epoch.
        sums: name -> sum over the epoch's batches, weighted by samples, and the sum of weights.
        history: the epochs before.
        callbacks: of each callback with a state its kind and that state.
        first_step: steps that the trainer had done before the run.
    """

    epoch: int = 0
    batch: int = 0
    sums: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    history: History = dataclasses.field(default_factory=History)
    callbacks: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    first_step: int = 0

    def add(self, values: Mapping[str, float], weight: float) -> None:
        """Counts a batch in."""
        for name, value in values.items():
            total, weights = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = (total + value * weight, weights + weight)
        self.batch += 1

    def means(self) -> Logs:
        """The means of the epoch so far."""
        return {name: total / weight if weight else math.nan for name, (total, weight) in self.sums.items()}

    def end_epoch(self, logs: Logs) -> None:
        """Goes on to the next epoch."""
        self.history.epochs.append(logs)
        self.epoch, self.batch, self.sums = self.epoch + 1, 0, {}

    def notes(self) -> dict[str, Any]:
        """What JSON keeps of it; equal runs make equal notes."""
        best = self.history.best
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "sums": {name: list(pair) for name, pair in self.sums.items()},
            "history": self.history.epochs,
            "stopped": self.history.stopped,
            "best": None if best is None else [best.value, best.epoch],
            "callbacks": self.callbacks,
            "first_step": self.first_step,
        }

    @classmethod
    def of(cls, notes: Mapping[str, Any]) -> Self | None:
        """Reads notes; `None` for those of something else."""
        match notes:
            case {
                "epoch": int(epoch),
                "batch": int(batch),
                "sums": dict(sums),
                "history": list(epochs),
                "stopped": str() | None as stopped,
                "best": [int() | float(), int()] | None as best,
                "callbacks": list(callbacks),
                "first_step": int(first_step),
            } if epoch == len(epochs) and batch >= 0 and all(map(_is_pair, sums.values())):
                if not all(isinstance(logs, dict) and all(map(_is_number, logs.values())) for logs in epochs):
                    return None
                if not all(isinstance(held, dict) and {"kind", "state"} <= set(held) for held in callbacks):
                    return None
                history = History(epochs, stopped, None if best is None else Best(float(best[0]), best[1]))
                pairs = {name: (pair[0], pair[1]) for name, pair in sums.items()}
                return cls(epoch, batch, pairs, history, callbacks, first_step)
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
