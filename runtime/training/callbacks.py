"""Callbacks of a run: early stopping and learning rates; subclasses of `Callback` are your own.

A callback's numbers are part of the checkpoint, so that a resumed run equals one that was not interrupted.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping
from typing import Any

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.fitting import Callback, Fit, Mode, Watch
from lstm_lower.runtime.training.rates import Rate
from lstm_lower.runtime.training.run import Logs

__all__ = ["Callback", "EarlyStopping", "EpochSchedule", "LearningRate", "ReduceOnPlateau"]


class _Watched:
    """The monitor of a callback: its own, or the run's.

    Attributes:
        watch: of the run that has begun.
    """

    def __init__(self, monitor: str | None, mode: Mode | None, min_delta: float) -> None:
        self._monitor, self._mode, self._min_delta = monitor, mode, min_delta
        self.watch = Watch(monitor or "loss", mode, min_delta)
        self._loaded: Mapping[str, Any] = {}

    def begin(self, fit: Fit) -> None:
        """Starts without a value, or from what was loaded."""
        given = (fit.watch.monitor, fit.watch.mode) if self._monitor is None else (self._monitor, self._mode)
        self.watch = Watch(*given, self._min_delta)
        self.watch.check(fit.names)
        if self._loaded:
            self.watch.best, self.watch.waited = self._loaded["best"], self._loaded["waited"]
        self._loaded = {}

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.watch.best, "waited": self.watch.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        best = state["best"]
        self._loaded = {"best": None if best is None else float(best), "waited": int(state["waited"])}


class EarlyStopping(Callback):
    """Ends a run that stops improving.

    The values of the best epoch are put back at the end unless `restore_best` is false.
    """

    def __init__(
        self,
        patience: int,
        *,
        monitor: str | None = None,
        mode: Mode | None = None,
        min_delta: float = 0.0,
        restore_best: bool = True,
    ) -> None:
        """Says what counts.

        Args:
            patience: epochs in a row that may be no better.
            monitor: what is watched, such as `val_loss`; `None` for what the run watches.
            mode: `min` or `max`: which is better; required unless the monitor is a loss.
            min_delta: by how much an epoch must be better to count.
            restore_best: whether the state of the best epoch, as the run watches it, is put back at the end.

        Raises:
            InvalidInputError: one of them is out of range.
        """
        if patience < 1:
            raise InvalidInputError(f"patience requires at least 1 epoch, got {patience}")
        self.patience, self.restore_best = patience, restore_best
        self._watched = _Watched(monitor, mode, min_delta)

    def begin(self, fit: Fit) -> None:
        self._watched.begin(fit)
        if self.restore_best:
            fit.keep_best = fit.restore_best = True

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        watch = self._watched.watch
        if not watch.better(logs) and watch.waited >= self.patience:
            fit.stop(f"{watch.monitor} did not improve for {self.patience} epochs")

    def state_dict(self) -> dict[str, Any]:
        return self._watched.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._watched.load_state_dict(state)


class LearningRate(Callback):
    """Sets the learning rate before every step.

    `LearningRate(rates.cosine(1000, warmup=50))`, or a function of one's own of the steps done and the rate at the
    beginning. Schedules that are part of the graph need no callback (`lstm_lower.passes.training.schedules`).
    """

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._first: float | None = None

    def begin(self, fit: Fit) -> None:
        if self._first is None:
            self._first = _rate_of(fit)

    def before_step(self, fit: Fit) -> None:
        assert self._first is not None
        fit.trainer.learning_rate = self._rate(fit.trainer.steps, self._first)

    def state_dict(self) -> dict[str, Any]:
        return {"first": self._first}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._first = float(state["first"])


class ReduceOnPlateau(Callback):
    """Lowers the learning rate when a run stops improving, as Keras' and PyTorch's do."""

    def __init__(
        self,
        *,
        factor: float = 0.1,
        patience: int = 10,
        monitor: str | None = None,
        mode: Mode | None = None,
        min_delta: float = 1e-4,
        least: float = 0.0,
    ) -> None:
        """Says when and by how much.

        Args:
            factor: what the rate is multiplied by.
            patience: epochs in a row that may be no better.
            monitor: as for `EarlyStopping`.
            mode: as for `EarlyStopping`.
            min_delta: as for `EarlyStopping`.
            least: lower bound of the rate.

        Raises:
            InvalidInputError: one of them is out of range.
        """
        if not 0 < factor < 1 or patience < 1:
            raise InvalidInputError(
                f"a plateau requires 0 < factor < 1 and a patience of at least 1, got {factor} and {patience}"
            )
        self._factor, self._patience, self._least = factor, patience, least
        self._watched = _Watched(monitor, mode, min_delta)

    def begin(self, fit: Fit) -> None:
        _rate_of(fit)
        self._watched.begin(fit)

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        watch = self._watched.watch
        if not watch.better(logs) and watch.waited >= self._patience:
            fit.trainer.learning_rate = max(self._least, fit.trainer.learning_rate * self._factor)
            watch.waited = 0

    def state_dict(self) -> dict[str, Any]:
        return self._watched.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._watched.load_state_dict(state)


class EpochSchedule(Callback):
    """Steps a scheduler of PyTorch after each epoch, and sets the learning rate that it says.

    `EpochSchedule(ReduceLROnPlateau(optimizer))`, or any scheduler that is stepped once an epoch. Its optimizer is not
    stepped; the rates of further groups keep their ratio to the first one's.
    """

    def __init__(self, scheduler: Any, *, monitor: str | None = None) -> None:
        """Takes a scheduler.

        Args:
            scheduler: what has `step`, `get_last_lr` and `state_dict`, as all of `torch.optim.lr_scheduler` have.
            monitor: what a scheduler that goes by a metric is told, such as `val_loss`; `None` for what the run
                watches.

        Raises:
            InvalidInputError: it is none.
        """
        if not all(hasattr(scheduler, name) for name in ("step", "get_last_lr", "optimizer")):
            raise InvalidInputError(f"a scheduler of torch.optim is required, got {type(scheduler).__name__}")
        self._scheduler, self._monitor = scheduler, monitor
        self._told = "metrics" in inspect.signature(scheduler.step).parameters

    def begin(self, fit: Fit) -> None:
        _rate_of(fit)
        if self._told:
            Watch(self._monitor or fit.watch.monitor, "min").check(fit.names)
        fit.trainer.learning_rate = self._rates()[0]

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        with warnings.catch_warnings():
            # It misses steps of its optimizer, which are done elsewhere.
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
            self._scheduler.step(*([logs[self._monitor or fit.watch.monitor]] if self._told else []))
        fit.trainer.learning_rate = self._rates()[0]

    def _rates(self) -> list[float]:
        return [float(group["lr"]) for group in self._scheduler.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {"scheduler": self._scheduler.state_dict(), "rates": self._rates()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._scheduler.load_state_dict(state["scheduler"])
        for group, rate in zip(self._scheduler.optimizer.param_groups, state["rates"], strict=True):
            group["lr"] = rate


def _rate_of(fit: Fit) -> float:
    rate = fit.trainer.learning_rate
    if not math.isfinite(rate):
        raise InvalidInputError(
            "a schedule requires a model with a learning-rate input, got one without; "
            "ll.Trainer(..., learning_rate_input='<constant>') makes one, and schedules can be part of the graph"
        )
    return rate
