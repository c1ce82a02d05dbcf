"""Callbacks of a run: early stopping, learning rates, checkpoints; subclasses of `Callback` are your own.

A callback's numbers are part of the checkpoint, so that a resumed run equals one that was not interrupted.
"""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.fitting import Callback, Fit, Mode, Watch
from lstm_lower.runtime.training.learner import Learner
from lstm_lower.runtime.training.rates import Rate
from lstm_lower.runtime.training.run import Logs

__all__ = ["Callback", "Checkpoints", "EarlyStopping", "EpochRate", "EpochSchedule", "LearningRate", "ReduceOnPlateau"]


class _Watched:
    """The monitor of a callback: its own, or the run's.

    Attributes:
        watch: of the run that has begun.
    """

    def __init__(self, monitor: str | None, mode: Mode | None, min_delta: float, after: int = 0) -> None:
        self._monitor, self._mode, self._min_delta, self._after = monitor, mode, min_delta, after
        self.watch = Watch(monitor or "loss", mode, min_delta, after)
        self._loaded: Mapping[str, Any] = {}

    @property
    def is_own(self) -> bool:
        """Whether the monitor is the callback's own."""
        return self._monitor is not None

    def started(self, fit: Fit) -> Watch:
        """A watch without a value."""
        given = (fit.watch.monitor, fit.watch.mode) if self._monitor is None else (self._monitor, self._mode)
        return Watch(*given, self._min_delta, self._after)

    def begin(self, fit: Fit) -> None:
        """Starts without a value, or from what was loaded."""
        self.watch = self.started(fit)
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
        baseline: float | None = None,
        after: int = 0,
    ) -> None:
        """Says what counts.

        Args:
            patience: epochs in a row that may be no better.
            monitor: what is watched, such as `val_loss`; `None` for what the run watches.
            mode: `min` or `max`: which is better; required unless the monitor is a loss.
            min_delta: by how much an epoch must be better to count.
            restore_best: whether the state of the best epoch is put back at the end: as `monitor` has it, or as the run
                does if there is none here or `fit` has one of its own.
            baseline: what an epoch must be better than, too, so that waiting begins anew.
            after: epochs at the beginning that do not count.

        Raises:
            InvalidInputError: one of them is out of range.
        """
        if patience < 1:
            raise InvalidInputError(f"patience requires at least 1 epoch, got {patience}")
        self.patience, self.restore_best = patience, restore_best
        self._baseline, self._watched = baseline, _Watched(monitor, mode, min_delta, after)

    def begin(self, fit: Fit) -> None:
        self._watched.begin(fit)
        if self.restore_best:
            fit.keep_best_of(self._watched.started(fit) if self._watched.is_own else fit.watch)

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        watch = self._watched.watch
        waited = watch.waited
        if watch.better(logs):
            if self._baseline is not None and not watch.beats(logs[watch.monitor], self._baseline):
                watch.waited = waited + 1
        elif watch.waited >= self.patience:
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
        cooldown: int = 0,
    ) -> None:
        """Says when and by how much.

        Args:
            factor: what the rate is multiplied by.
            patience: epochs in a row that may be no better.
            monitor: as for `EarlyStopping`.
            mode: as for `EarlyStopping`.
            min_delta: as for `EarlyStopping`.
            least: lower bound of the rate.
            cooldown: epochs after a change in which waiting does not begin.

        Raises:
            InvalidInputError: one of them is out of range.
        """
        if not 0 < factor < 1 or patience < 1:
            raise InvalidInputError(
                f"a plateau requires 0 < factor < 1 and a patience of at least 1, got {factor} and {patience}"
            )
        self._factor, self._patience, self._least, self._cooldown = factor, patience, least, cooldown
        self._watched = _Watched(monitor, mode, min_delta)
        self._resting = 0

    def begin(self, fit: Fit) -> None:
        _rate_of(fit)
        self._watched.begin(fit)

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        watch = self._watched.watch
        if self._resting:
            self._resting, watch.waited = self._resting - 1, 0
        improved = watch.better(logs)
        if self._resting:
            watch.waited = 0
        elif not improved and watch.waited >= self._patience and fit.trainer.learning_rate > self._least:
            fit.trainer.learning_rate = max(self._least, fit.trainer.learning_rate * self._factor)
            self._resting, watch.waited = self._cooldown, 0

    def state_dict(self) -> dict[str, Any]:
        return {**self._watched.state_dict(), "resting": self._resting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._watched.load_state_dict(state)
        self._resting = int(state.get("resting", 0))


class EpochRate(Callback):
    """Sets the learning rate before every epoch, as Keras' LearningRateScheduler does."""

    def __init__(self, rate: Callable[[int, float], float]) -> None:
        """Takes a function of the epoch, counted from 0, and of the rate before it."""
        self._rate = rate

    def begin(self, fit: Fit) -> None:
        _rate_of(fit)

    def before_step(self, fit: Fit) -> None:
        # Of an epoch that goes on in the middle, the rate is part of the checkpoint.
        if fit.progress.batch == 0:
            fit.trainer.learning_rate = self._rate(fit.progress.epoch, fit.trainer.learning_rate)


class Checkpoints(Callback):
    """Saves the state after epochs, or every so many steps, in files of their own.

    A run's folder keeps the last and the best checkpoint without it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        every: int | None = None,
        best_only: bool = False,
        monitor: str | None = None,
        mode: Mode | None = None,
        threshold: float | None = None,
        write: Callable[[Learner, Path], None] | None = None,
    ) -> None:
        """Says when and where.

        Args:
            path: of the files, in which `{epoch:02d}`, `{val_loss:.3f}` and other values of the logs are filled in, and
                `{batch}` where steps are counted.
            every: steps between two checkpoints; `None` for one after each epoch.
            best_only: whether only what is better than all before is saved.
            monitor: as for `EarlyStopping`.
            mode: as for `EarlyStopping`.
            threshold: what the first one must be better than.
            write: how the state of a trainer is written; `None` for `Trainer.save`.

        Raises:
            InvalidInputError: one of them is out of range.
        """
        if every is not None and every < 1:
            raise InvalidInputError(f"every requires at least 1 step, got {every}")
        self._path, self._every, self._best_only = os.fspath(path), every, best_only
        self._write = write or (lambda trainer, path: trainer.save(path))
        self._watched, self._threshold = _Watched(monitor, mode, 0.0), threshold

    def begin(self, fit: Fit) -> None:
        if not self._best_only:
            return
        self._watched.begin(fit)
        if self._watched.watch.best is None:
            self._watched.watch.best = self._threshold

    def after_step(self, fit: Fit, values: Logs) -> None:  # noqa: ARG002 (the means of the epoch so far count)
        if self._every is not None and (fit.trainer.steps - fit.progress.first_step) % self._every == 0:
            logs: Logs = {"epoch": fit.progress.epoch + 1, **fit.progress.means()}
            self._save(fit, logs, {"batch": fit.progress.batch})

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        if self._every is None:
            self._save(fit, logs, {})

    def _save(self, fit: Fit, logs: Logs, numbers: Mapping[str, int]) -> None:
        if self._best_only and not self._watched.watch.better(logs):
            return
        try:
            path = Path(self._path.format(**logs, **numbers))
        except (KeyError, IndexError, ValueError) as error:
            raise InvalidInputError(
                f"path requires names of {[*logs, *numbers]} in braces, got {self._path!r}: {error}"
            ) from error
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(fit.trainer, path)

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
