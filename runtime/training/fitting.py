"""The loop around a trainer's steps: epochs, validation, callbacks, and a folder that a run goes on from.

`Trainer.fit` and `lstm-lower train` are this. The order of samples depends on the seed and the epoch alone, and all
that a run knows is in its checkpoint, so a run that was killed and resumed equals one that was not, bit for bit.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from lstm_lower.errors import InvalidInputError, NotFiniteError, warn
from lstm_lower.runtime.training.data.layout import Batch
from lstm_lower.runtime.training.data.prefetch import Prefetched
from lstm_lower.runtime.training.data.source import Order, Source
from lstm_lower.runtime.training.learner import Array, Learner
from lstm_lower.runtime.training.run import Best, History, Logs, Progress, Run

# What a run watches: whether a value gets better from epoch to epoch.


Mode = Literal["min", "max"]

LOSSES = ("loss", "val_loss")


class Watch:
    """Whether a value gets better from epoch to epoch.

    Attributes:
        monitor: name in the epoch's logs.
        mode: which way is better.
        min_delta: by how much it must get better to count.
        after: epochs at the beginning that do not count.
        best: the best value, or `None`.
        waited: epochs since.
    """

    def __init__(self, monitor: str, mode: Mode | None = None, min_delta: float = 0.0, after: int = 0) -> None:
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
        self.monitor, self.mode, self.min_delta, self.after = monitor, mode or "min", min_delta, after
        self.best: float | None = None
        self.waited = 0

    def better(self, logs: Logs) -> bool:
        """Takes an epoch's value; NaN is not better."""
        if logs["epoch"] <= self.after:
            return False
        value = logs[self.monitor]
        improved = math.isfinite(value) and (self.best is None or self.beats(value, self.best))
        self.best, self.waited = (value, 0) if improved else (self.best, self.waited + 1)
        return improved

    def beats(self, value: float, other: float) -> bool:
        """Whether a value is better than another one by what counts."""
        sign = 1.0 if self.mode == "min" else -1.0
        return sign * value < sign * other - self.min_delta

    def check(self, names: list[str]) -> None:
        """Raises an InvalidInputError if the run's epochs have no such value."""
        if self.monitor not in names:
            raise InvalidInputError(f"monitor requires one of {names}, got '{self.monitor}'")


# Interruptions that wait for the end of a step.


# Signals that ask a process to end: Ctrl-C, a machine that shuts down, a terminal that is closed.
ENDINGS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def is_hangup(number: int | None) -> bool:
    """Whether a signal says that the terminal was closed."""
    return number is not None and number == getattr(signal, "SIGHUP", None)


@contextlib.contextmanager
def collected(numbers: Sequence[signal.Signals]) -> Iterator[list[int]]:
    """Collects the first of some signals, so that a step can end; the next one does what it did before.

    Python hands signals to its main thread only; in another one nothing is collected. A hangup that is ignored, as
    `nohup` has it, stays so.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.getsignal(number) for number in numbers}
    before = {
        number: handler for number, handler in before.items() if handler != signal.SIG_IGN or not is_hangup(number)
    }

    def stop(number: int, _: Any) -> None:
        caught.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# What comes before the names of values of the validation.
VALIDATION = "val_"


class Callback:
    """Base of all callbacks: a subclass overrides the methods that it needs.

    `fit` is the run: `fit.trainer`, `fit.progress`, `fit.stop(reason)`.
    """

    def begin(self, fit: Fit) -> None:
        """Before the first step, also of a resumed run, whose state is loaded by then."""

    def before_step(self, fit: Fit) -> None:
        """Before a step."""

    def after_step(self, fit: Fit, values: Logs) -> None:
        """After a step, with its loss and metrics."""

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        """After an epoch and its validation, with the values that the history records."""

    def end(self, fit: Fit) -> None:
        """When the run ends, for whatever reason."""

    def state_dict(self) -> dict[str, Any]:
        """Its state in types that JSON can hold, for a run that is continued in another process."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned."""


class Fit:
    """A run: a trainer, data, and where it is.

    Attributes:
        trainer: whose steps are done.
        order: of samples.
        progress: where the run is.
        run: its folder, or `None`.
        resumed: whether a run that stood in the folder goes on.
        metrics: outputs of the steps that are logged beside the loss.
        names: what the logs of an epoch hold.
        watch: the value that decides which epoch is the best.
        keep_best: whether the best epoch's state is kept; with a folder it always is.
        restore_best: whether it is put back at the end.
        batches: steps per epoch, or `None` where only reading the data tells.
        epochs: where `go` ends.
    """

    def __init__(
        self,
        trainer: Learner,
        source: Source,
        order: Order,
        *,
        validation: Source | None = None,
        metrics: Sequence[str] | None = None,
        callbacks: Sequence[Callback] = (),
        monitor: str | None = None,
        mode: Mode | None = None,
        restore_best: bool = False,
        folder: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Opens the folder; a run in it is continued.

        Args:
            trainer: the trainer.
            source: training data.
            order: how samples are grouped and ordered.
            validation: data to evaluate on after each epoch.
            metrics: outputs to log; `None` for all scalars of the step that are neither state nor gradients.
            callbacks: what else happens.
            monitor: the value that is lowest (or highest) in the best epoch; `None` for `val_loss`, or `loss` without
                validation.
            mode: `min` or `max`: which is better; required unless the monitor is a loss.
            restore_best: whether the best epoch's state is put back at the end.
            folder: of the run; `None` for none.
            options: what else must stay the same in a run that goes on.

        Raises:
            InvalidInputError: an option is not allowed, or the run in the folder has other options or other data, or is
                damaged, or another process trains there.
            OSError: the folder cannot be made or written to.
        """
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise InvalidInputError(f"callbacks requires objects of callbacks.Callback, got {callback!r}")
        self.trainer, self.order, self.callbacks = trainer, order, list(callbacks)
        self._source, self._validation = source, validation
        self.batches = source.batches(order)
        self.epochs = 0
        self.metrics = trainer.metrics if metrics is None else list(metrics)
        self.keep_best = self.restore_best = restore_best
        self.names = [*(["loss"] if trainer.has_loss else []), *self.metrics]
        if validation is not None:
            trainer.evaluator.check(validation, order.batch_size)
            self.names += [VALIDATION + name for name in trainer.evaluator.names]
        self._monitor_given = given = monitor is not None
        if monitor is None:
            monitor = VALIDATION + "loss" if VALIDATION + "loss" in self.names else "loss"
        self.watch = Watch(monitor, mode)
        if given or monitor in self.names:
            self.watch.check(self.names)
        self.progress = Progress(first_step=trainer.steps)
        self._best_state: dict[str, Array] | None = None
        self._options = dict(options or {})
        self.run = None if folder is None else Run(folder)
        sources = {"data": source, "validation": validation} if self.run is not None else {}
        self._fingerprints = {name: held.fingerprint() for name, held in sources.items() if held is not None}
        try:
            self.resumed = self.run is not None and self._resume(self.run)
            if self.run is not None:
                self.run.keep_lines(trainer.steps - self.progress.first_step, self.progress.epoch)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets others have the folder."""
        if self.run is not None:
            self.run.close()

    @property
    def history(self) -> History:
        """Results of the epochs so far."""
        return self.progress.history

    def keep_best_of(self, watch: Watch) -> None:
        """Puts the best epoch's state back at the end: as a callback watches it, unless the run was given a monitor."""
        self.keep_best = self.restore_best = True
        if not self._monitor_given:
            watch.best, self.watch = self.watch.best, watch

    def stop(self, reason: str) -> None:
        """Ends the run after this epoch; it does not go on when it is asked for more epochs."""
        self.progress.history.stopped = reason

    def go(self, epochs: int, save_every: int | None = None, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Trains up to a number of epochs, counted from the run's beginning.

        Args:
            epochs: when to end.
            save_every: steps between checkpoints; the end of each epoch gets one, too.
            stopped: asked after every step and every batch of a validation; if true, the run is saved and ends.

        Returns:
            Whether all is done; false where `stopped` said so.

        Raises:
            InvalidInputError: the data are used up before the last epoch; nothing is done.
            NotFiniteError: a loss or a weight is no longer finite, and the trainer is to stop there.
            OSError: the log or a checkpoint cannot be written, for example to a full disk.
            After any error the last checkpoint is as it was.
        """
        self.epochs = epochs
        for source in (self._source, self._validation):
            if source is not None:
                source.check_epochs(epochs - self.progress.epoch)
        with contextlib.ExitStack() as stack:
            if self.run is not None:
                stack.enter_context(
                    self.run.writing(self.trainer.steps - self.progress.first_step, self.progress.epoch)
                )
            try:
                for callback in self.callbacks:
                    callback.begin(self)
                    stack.callback(callback.end, self)
                done = self._go(save_every, stopped)
            except NotFiniteError as error:
                raise NotFiniteError(f"{error}; {self.run.kept()}" if self.run is not None else str(error)) from error
        if done and self.restore_best:
            self._put_best_back()
        wanted: int = getattr(self.trainer, "accumulate", 1)
        if done and self.trainer.steps < wanted:
            warn(
                f"accumulate={wanted} requires as many batches for an update, got {self.trainer.steps} in all: no "
                "weight has changed; smaller batches, or more epochs, make more of them"
            )
        return done

    def _go(self, save_every: int | None, stopped: Callable[[], bool]) -> bool:
        while self.progress.epoch < self.epochs and self.history.stopped is None:
            at = self.progress
            with contextlib.closing(Prefetched(self._source.epoch(self.order, at.epoch, at.batch))) as batches:
                for feeds in batches:
                    self._step(feeds)
                    if stopped():
                        self._save()
                        return False
                    if save_every is not None and self.trainer.steps % save_every == 0:
                        self._save()
            if not self._end_epoch(stopped):
                self._save()
                return False
        return True

    def _step(self, feeds: Batch) -> None:
        for callback in self.callbacks:
            callback.before_step(self)
        result = self.trainer.step(feeds, self.metrics)
        values = {"loss": result.loss} if self.trainer.has_loss else {}
        values |= {name: _scalar(name, result.outputs[name]) for name in self.metrics}
        # A step that is left out is no part of the epoch's means.
        counts = self.trainer.on_nan != "skip" or math.isfinite(result.loss) or not self.trainer.has_loss
        self.progress.add(values if counts else {}, self._source.layout.samples(feeds))
        if self.run is not None:
            line = {"step": self.trainer.steps, "epoch": self.progress.epoch, "loss": None, **values}
            # JSON has no name for what is not a number.
            self.run.write_step({name: value if math.isfinite(value or 0) else None for name, value in line.items()})
        for callback in self.callbacks:
            callback.after_step(self, values)

    def _end_epoch(self, stopped: Callable[[], bool]) -> bool:
        """Evaluates, and goes on to the next epoch; false where it was interrupted before."""
        at = self.progress
        logs: Logs = {"epoch": at.epoch + 1, **at.means()}
        if self.trainer.has_loss and "loss" not in logs:
            warn(
                f"epoch {at.epoch + 1} requires a step whose loss is finite, got none: all of them are left out, and "
                "no weight has changed"
            )
        if math.isfinite(self.trainer.learning_rate):
            logs["learning_rate"] = self.trainer.learning_rate
        if self._validation is not None:
            scores = self.trainer.evaluator.evaluate(self._validation, self.order.batch_size, stopped)
            if scores is None:
                return False
            logs |= {VALIDATION + name: value for name, value in scores.items()}
        for callback in self.callbacks:
            callback.after_epoch(self, logs)
        self._look_for_best(logs)
        at.end_epoch(logs)
        if self.run is not None:
            self.run.write_epoch({name: value if math.isfinite(value) else None for name, value in logs.items()})
        self._save()
        return True

    def _look_for_best(self, logs: Logs) -> None:
        if self.watch.monitor not in logs or not self.watch.better(logs):
            return
        self.history.best = Best(logs[self.watch.monitor], int(logs["epoch"]))
        if self.run is not None:
            self._check_finite()
            self.run.save_best(self.trainer, {"epoch": logs["epoch"], self.watch.monitor: logs[self.watch.monitor]})
        elif self.keep_best:
            self._best_state = self.trainer.state_dict()

    def _put_best_back(self) -> None:
        if self.history.best is None or self.history.best.epoch == self.progress.epoch:
            return
        if self.run is not None:
            self.trainer.load_state_dict(self.run.best_state())
        elif self._best_state is not None:
            self.trainer.load_state_dict(self._best_state)

    def _check_finite(self) -> None:
        if self.trainer.on_nan != "ignore":
            self.trainer.check_finite()

    def _save(self) -> None:
        if self.run is None:
            return
        self._check_finite()
        self.progress.callbacks = [
            {"kind": type(callback).__name__, "state": callback.state_dict()} for callback in self._stateful()
        ]
        self.run.save(self.trainer, {**self._same(), "fingerprints": self._fingerprints, **self.progress.notes()})

    def _same(self) -> dict[str, Any]:
        """Properties that a run that goes on must have the same."""
        order = self.order
        validation = None if self._validation is None else self._validation.count or "batches"
        return {
            "batch_size": order.batch_size,
            "seed": order.seed,
            "shuffle": order.shuffle,
            "validation": validation,
            **self._options,
            "samples": self._source.count,
        }

    def _resume(self, run: Run) -> bool:
        earlier = run.earlier()
        if earlier is None:
            return False
        # What says best why the run cannot go on is looked at first.
        path, notes = earlier
        for name, value in self._same().items():
            if notes.get(name) != value:
                raise InvalidInputError(
                    f"{run.folder}: {name} requires {notes.get(name)}, as the run there has it, got {value}"
                )
        progress = Progress.of(notes)
        if progress is None or (self.batches is not None and progress.batch > self.batches):
            raise InvalidInputError(f"{path}: a checkpoint of a run is required, got none of an epoch")
        stateful = self._stateful()
        kinds = [type(callback).__name__ for callback in stateful]
        if kinds != [held["kind"] for held in progress.callbacks]:
            raise InvalidInputError(
                f"{run.folder}: callbacks require {[held['kind'] for held in progress.callbacks]}, as the run there "
                f"has them, got {kinds}"
            )
        try:
            self.trainer.resume(path)
        except InvalidInputError as error:
            raise InvalidInputError(f"{run.folder}: the run there does not fit the model: {error}") from error
        for callback, held in zip(stateful, progress.callbacks, strict=True):
            try:
                callback.load_state_dict(held["state"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise InvalidInputError(
                    f"{path}: a state of {held['kind']} is required, got {held['state']!r:.80}"
                ) from error
        self._warn_of_other_data(run, notes)
        self.progress = progress
        if progress.history.best is not None:
            self.watch.best = progress.history.best.value
        return True

    def _warn_of_other_data(self, run: Run, notes: Mapping[str, Any]) -> None:
        held = notes.get("fingerprints")
        if not isinstance(held, Mapping):
            return
        others = [
            name
            for name, now in self._fingerprints.items()
            if now is not None
            and isinstance(before := held.get(name), Mapping)
            and before.keys() == now.keys()
            and before != now
        ]
        if others:
            warn(
                f"{run.folder}: the run goes on, and requires the same {' and '.join(others)} as before to equal one "
                "that was not interrupted, got other samples, as many"
            )

    def _stateful(self) -> list[Callback]:
        return [callback for callback in self.callbacks if type(callback).state_dict is not Callback.state_dict]


def _scalar(name: str, array: Array) -> float:
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise InvalidInputError(f"metrics require scalars, got '{name}' of shape {list(array.shape)}")
    return float(array.reshape(()))
