"""Event files for TensorBoard, written by its own package and without TensorFlow."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_lower.extras import needed_by
from lstm_lower.runtime.training.fitting import Callback
from lstm_lower.runtime.training.run import Logs

if TYPE_CHECKING:
    from lstm_lower.runtime.training.fitting import Fit


class TensorBoard(Callback):
    """Writes loss and metrics of steps (`step/<name>`) and of epochs (`epoch/<name>`) as event files.

    A run that goes on writes a further file, in which steps that are done again replace those before.
    """

    def __init__(self, folder: str | os.PathLike[str], *, every: int = 1) -> None:
        """Takes a folder, which is made when the run begins.

        Args:
            folder: what `tensorboard --logdir` is given.
            every: steps between two of which values are written.

        Raises:
            MissingPackageError: tensorboard is not installed.
        """
        with needed_by("TensorBoard event files"):
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        self._event, self._summary, self._writer = event_pb2, summary_pb2, RecordWriter
        self._folder, self._every = Path(folder), every
        self._records: Any = None

    def begin(self, fit: Fit) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{now:.6f}.{platform.node()}.{os.getpid()}"
        self._records = self._writer((self._folder / name).open("xb"))
        self._write(fit, file_version="brain.Event:2")
        # Tells TensorBoard to drop what came from a process that was killed later than at this step.
        start = self._event.SessionLog(status=self._event.SessionLog.START)
        self._write(fit, session_log=start)

    def after_step(self, fit: Fit, values: Logs) -> None:
        if fit.trainer.steps % self._every == 0:
            self._scalars(fit, "step", values)

    def after_epoch(self, fit: Fit, logs: Logs) -> None:
        self._scalars(fit, "epoch", {name: value for name, value in logs.items() if name != "epoch"})
        self._records.flush()

    def end(self, fit: Fit) -> None:  # noqa: ARG002 (a callback's)
        if self._records is not None:
            self._records.close()
            self._records = None

    def _scalars(self, fit: Fit, group: str, values: Logs) -> None:
        entries = [self._summary.Summary.Value(tag=f"{group}/{name}", simple_value=it) for name, it in values.items()]
        self._write(fit, summary=self._summary.Summary(value=entries))

    def _write(self, fit: Fit, **what: Any) -> None:
        event = self._event.Event(wall_time=time.time(), step=fit.trainer.steps, **what)
        self._records.write(event.SerializeToString())
