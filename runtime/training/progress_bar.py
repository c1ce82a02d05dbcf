"""How far a run is: a bar on a terminal, a line per epoch elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lstm_lower.errors import shown
from lstm_lower.runtime.training.fitting import Callback
from lstm_lower.runtime.training.run import Logs

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from lstm_lower.runtime.training.fitting import Fit


def progress_on(console: Console) -> Callback:
    """The one that suits a console."""
    return (
        ProgressBar(console) if console.is_terminal else ProgressLines(lambda line: console.print(line, markup=False))
    )


class ProgressBar(Callback):
    """A bar with loss, speed and the time that is left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._steps: int | None = None

    def begin(self, fit: Fit) -> None:
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("epoch {task.fields[epoch]} of {task.fields[epochs]}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("loss {task.fields[loss]:.4g}  {task.fields[speed]:.1f} steps/s"),
            progress.TimeRemainingColumn(),
            console=self._console,
        )
        total = None if fit.batches is None else fit.epochs * fit.batches
        done = fit.trainer.steps - fit.progress.first_step
        fields: dict[str, Any] = {"epoch": fit.progress.epoch + 1, "epochs": fit.epochs, "loss": math.nan, "speed": 0.0}
        self._task = self._bar.add_task("train", total=total, completed=done, **fields)
        self._bar.start()

    def after_step(self, fit: Fit, values: Logs) -> None:
        assert self._bar is not None
        assert self._task is not None
        speed = next(task.speed for task in self._bar.tasks if task.id == self._task) or 0.0
        loss = values.get("loss", math.nan)
        self._bar.update(self._task, advance=1, epoch=fit.progress.epoch + 1, loss=loss, speed=speed)

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        assert self._bar is not None
        if len(logs) > len({"epoch", "loss", "learning_rate"}):
            self._bar.console.print(f"epoch {fit.progress.epoch + 1}: {values_text(logs)}", markup=False)

    def end(self, fit: Fit) -> None:  # noqa: ARG002 (a callback's)
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class ProgressLines(Callback):
    """A line at the end of every epoch: the means of the epoch, its validation, and the speed."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._since = self._first = 0.0

    def begin(self, fit: Fit) -> None:
        self._first, self._since = fit.trainer.steps, time.monotonic()

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        now, step = time.monotonic(), fit.trainer.steps
        speed = (step - self._first) / max(now - self._since, 1e-9)
        done = step - fit.progress.first_step
        of = "" if fit.batches is None else f" of {fit.epochs * fit.batches}"
        where = f"epoch {fit.progress.epoch + 1} of {fit.epochs}: step {done}{of}"
        self._write(f"{where}, {values_text(logs)}, {speed:.1f} steps/s")
        self._first, self._since = step, now


def values_text(logs: Logs) -> str:
    """The results of an epoch in words."""
    told = {shown(name): value for name, value in logs.items() if name not in ("epoch", "learning_rate")}
    return ", ".join(f"{'mean loss' if name == 'loss' else name} {value:.4g}" for name, value in told.items())
