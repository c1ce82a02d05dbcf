"""The folder of a run: one process at a time, a log of steps and epochs, checkpoints that are whole.

It holds `checkpoint.safetensors` (state, and where the run is) and the one before it, `best.safetensors` (the state of
the best epoch), `metrics.jsonl` (a line per step) and `epochs.jsonl` (a line per epoch).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from lstm_lower.errors import InvalidInputError
from lstm_lower.extras import needed_by
from lstm_lower.records.files import atomic_path, make_folder, own_path, remove_empty
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.training.learner import Array, Learner

if TYPE_CHECKING:
    from filelock import BaseFileLock


# Where a run is, and what came of its epochs; what a checkpoint keeps of it.


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
    """The result of `fit`.

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

    def __iter__(self) -> Iterator[str]:
        """The names of the values; without it `in` would look for one forever."""
        return iter(dict.fromkeys(name for logs in self.epochs for name in logs))


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
        """Notes of it for JSON; equal runs make equal notes."""
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


# A line with more is none of ours.
_MOST_STEPS = 2**53


class Run:
    """A folder that no other process uses while this one has it open.

    Attributes:
        folder: the folder.
        checkpoint: the last checkpoint's file.
        best: the best epoch's file.
        log: the file with a line per step.
        epochs: the file with a line per epoch.
        note: what a user should know of how it was opened, or `None`.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Opens a folder, which is made if it is not there.

        Raises:
            InvalidInputError: another process trains there, or it is a file.
            OSError: the folder cannot be made or written to, or one of its files is a link, which leads elsewhere.
        """
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidInputError(f"{self.folder}: a folder is required for the run, got a file")
        self._made = make_folder(self.folder)
        try:
            self.checkpoint, self.best, self.log, self.epochs, self._lock_file = (
                own_path(self.folder, name)
                for name in ("checkpoint.safetensors", "best.safetensors", "metrics.jsonl", "epochs.jsonl", ".lock")
            )
            for path in (self.checkpoint, self.best):
                own_path(self.folder, checkpoint.previous_path(path).name)
        except OSError:
            remove_empty(self._made)
            raise
        self.note: str | None = None
        self._logs = (self.log, self.epochs)
        self._streams: dict[Path, TextIO] = {}
        self._lock = _lock(self._lock_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets others have the folder; a run that never came to a step leaves nothing in it."""
        begun = self.checkpoint.exists() or any(path.exists() and path.stat().st_size for path in self._logs)
        if self._lock.is_locked and not begun:
            for path in (*self._logs, self._lock_file):
                with contextlib.suppress(OSError):  # Windows removes no file that is open; it stays, empty
                    path.unlink(missing_ok=True)
            self._lock.release()
            remove_empty(self._made)
        self._lock.release()

    def earlier(self) -> tuple[Path, dict[str, Any]] | None:
        """The checkpoint to continue from and the run's notes; `None` if the folder holds no run.

        Of a damaged checkpoint the one before it is taken, which leads to the same run; `note` says so.

        Raises:
            InvalidInputError: no checkpoint there is complete.
        """
        if not self.checkpoint.exists():
            return None
        try:
            return self.checkpoint, self._notes_of(self.checkpoint)
        except InvalidInputError as error:
            before = checkpoint.previous_path(self.checkpoint)
            if not before.is_file():
                raise
            with contextlib.suppress(InvalidInputError):
                notes = self._notes_of(before)
                self.note = f"{error}; the run goes on from it"
                return before, notes
            raise

    def _notes_of(self, path: Path) -> dict[str, Any]:
        return checkpoint.progress(path, checkpoint.read(path)[1])[2]

    @contextlib.contextmanager
    def writing(self, steps: int, epochs: int) -> Iterator[None]:
        """Has the logs open; lines of what is done again, since it came after the checkpoint, are dropped first.

        Args:
            steps: lines of the log of steps that are kept.
            epochs: lines of the log of epochs that are kept.

        Raises:
            OSError: a log cannot be written.
        """
        self.keep_lines(steps, epochs)
        with contextlib.ExitStack() as stack:
            with self._explained():
                self._streams = {path: path.open("a", encoding="utf-8") for path in self._logs}
            stack.callback(self._streams.clear)
            for stream in self._streams.values():
                stack.callback(self._close, stream)
            yield

    def _close(self, stream: TextIO) -> None:
        with self._explained():
            stream.close()

    def write_step(self, line: Mapping[str, Any]) -> None:
        """Logs a step."""
        with self._explained():
            self._streams[self.log].write(json.dumps(line) + "\n")

    def write_epoch(self, line: Mapping[str, Any]) -> None:
        """Logs an epoch."""
        with self._explained():
            self._streams[self.epochs].write(json.dumps(line) + "\n")

    def save(self, trainer: Learner, notes: Mapping[str, Any]) -> None:
        """Writes a checkpoint, and the logs before it, so that a checkpoint's steps are always in them.

        Raises:
            OSError: it cannot be written; the one before is as it was.
        """
        with self._explained():
            for stream in self._streams.values():
                stream.flush()
                os.fsync(stream.fileno())
            trainer.save(self.checkpoint, notes)

    def save_best(self, trainer: Learner, notes: Mapping[str, Any]) -> None:
        """Writes the best epoch's state.

        Raises:
            OSError: it cannot be written; the one before is as it was.
        """
        with self._explained():
            trainer.save(self.best, notes)
            checkpoint.previous_path(self.best).unlink(missing_ok=True)

    def best_state(self) -> dict[str, Array]:
        """The best epoch's state.

        Raises:
            InvalidInputError: it is damaged.
            FileNotFoundError: it is not there.
        """
        return checkpoint.read(self.best)[0]

    def losses(self) -> list[dict[str, Any]]:
        """The log's lines of steps; a loss that is not finite is `None`.

        Raises:
            InvalidInputError: a line is not one that a run writes.
        """
        lines = []
        for number, line in enumerate(self.log.read_bytes().splitlines(), start=1):
            try:
                lines.append(json.loads(line))
                match lines[-1]:
                    case {"step": int(step), "loss": int() | float() | None as loss} if 0 <= step < _MOST_STEPS:
                        float(loss or 0)
                        continue
            except (ValueError, OverflowError, RecursionError):
                pass
            raise InvalidInputError(f"{self.log}: line {number} requires a step and a loss, got {line[:80]!r}")
        return lines

    def kept(self) -> str:
        """The fate of the checkpoint, for messages."""
        kept = "is as it was" if self.checkpoint.exists() else "was not yet written"
        return f"the checkpoint {self.checkpoint} {kept}"

    def keep_lines(self, steps: int, epochs: int) -> None:
        """Drops lines behind the first ones, and one that is cut off; another name of the file keeps them all."""
        for path, count in ((self.log, steps), (self.epochs, epochs)):
            if path.exists():
                data = path.read_bytes()
                kept = [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")][:count]
                with atomic_path(path) as complete:
                    complete.write_bytes(b"".join(kept))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(f"{self.folder}: the run cannot be written: {error}; {self.kept()}") from error


def _lock(path: Path) -> BaseFileLock:
    with needed_by("a run"):
        from filelock import FileLock, Timeout
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InvalidInputError(
            f"{path.parent}: a folder of its own is required for the run, got one in which another process trains"
        ) from error
    return lock
