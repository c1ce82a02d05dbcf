"""A training run in a folder: epochs over arrays, a log of every step, checkpoints, and going on where one stood.

The folder holds `checkpoint.safetensors` (state, and where the run is) and `metrics.jsonl` (one line per step). The
order of samples depends on the seed and the epoch alone, so a run that was killed and resumed equals one that was not,
bit for bit.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import numpy as np

from lstm_lower.dtypes import native
from lstm_lower.errors import InvalidInputError, NotFiniteError
from lstm_lower.extras import needed_by
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.training.trainer import Trainer
from lstm_lower.runtime.values import number_dtype, signature

if TYPE_CHECKING:
    from filelock import BaseFileLock

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What decides a run's numbers, besides model and data.

    Attributes:
        batch_size: samples per step; the last step of an epoch has fewer where the model leaves the size open.
        seed: of the order of samples.
        shuffle: whether to change the order in every epoch.
        options: what else must stay the same in a run that goes on, such as the limits of gradients.
    """

    batch_size: int = 32
    seed: int = 0
    shuffle: bool = True
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def notes(self) -> dict[str, Any]:
        """What a checkpoint says about the plan."""
        return {"batch_size": self.batch_size, "seed": self.seed, "shuffle": self.shuffle, **self.options}


class Samples:
    """Arrays divided into samples along the axis whose size the model leaves open, the first one of each input.

    Attributes:
        count: number of samples.
    """

    def __init__(self, trainer: Trainer, arrays: Mapping[str, Array]) -> None:
        """Checks the arrays against the model's data inputs.

        Raises:
            InvalidInputError: an array is missing, or of a wrong dtype or shape, or the numbers of samples differ.
        """
        declared = {value.name: value for value in trainer.session.ort.get_inputs()}
        missing = [f"'{name}' {signature(declared[name])}" for name in trainer.inputs if name not in arrays]
        if missing:
            raise InvalidInputError(f"data requires an array {' and '.join(missing)}, got {sorted(arrays)}")
        self._arrays = {name: native(arrays[name], f"data '{name}'") for name in trainer.inputs}
        self._axes = {}
        for name, array in self._arrays.items():
            sizes = declared[name].shape
            if len(sizes) != array.ndim or not array.ndim:
                raise InvalidInputError(
                    f"data '{name}' requires rank {max(1, len(sizes))}, {signature(declared[name])}, "
                    f"got {list(array.shape)}"
                )
            dtype = number_dtype(declared[name])
            if array.dtype != dtype:
                raise InvalidInputError(
                    f"data '{name}' requires {signature(declared[name])}, got {array.dtype.name}; "
                    f"array.astype('{dtype}') converts it"
                )
            self._axes[name] = axis = next((i for i, size in enumerate(sizes) if not isinstance(size, int)), 0)
            for i, (size, got) in enumerate(zip(sizes, array.shape, strict=True)):
                if isinstance(size, int) and size != got and i != axis:
                    raise InvalidInputError(
                        f"data '{name}' requires {signature(declared[name])}, got {list(array.shape)} (axis {i})"
                    )
        self._fixed = {size for name, axis in self._axes.items() if isinstance(size := declared[name].shape[axis], int)}
        counts = {name: array.shape[self._axes[name]] for name, array in self._arrays.items()}
        if len(set(counts.values())) != 1:
            raise InvalidInputError(f"data requires as many samples in every array, got {counts}")
        self.count = int(next(iter(counts.values())))

    def batches(self, plan: Plan) -> int:
        """Steps per epoch.

        Raises:
            InvalidInputError: the model's batch size is another one, or no batch is complete.
        """
        if self._fixed - {plan.batch_size}:
            sizes = ", ".join(map(str, sorted(self._fixed)))
            raise InvalidInputError(f"batch size requires {sizes}, as the model has it, got {plan.batch_size}")
        count: int = self.count // plan.batch_size if self._fixed else -(-self.count // plan.batch_size)
        if count == 0:
            raise InvalidInputError(f"data requires at least one batch of {plan.batch_size}, got {self.count} samples")
        return count

    def epoch(self, plan: Plan, epoch: int, first: int) -> Iterator[dict[str, Array]]:
        """Feeds of one epoch from a batch on."""
        order = np.arange(self.count)
        if plan.shuffle:
            order = np.random.default_rng([plan.seed, epoch]).permutation(self.count)
        for number in range(first, self.batches(plan)):
            rows = order[number * plan.batch_size : (number + 1) * plan.batch_size]
            yield {name: np.take(array, rows, self._axes[name]) for name, array in self._arrays.items()}


class Run:
    """A run in a folder, which no other process uses while this one has it open.

    Attributes:
        epoch: the epoch it is in.
        batch: the next batch of that epoch.
    """

    def __init__(self, trainer: Trainer, samples: Samples, folder: Path, plan: Plan) -> None:
        """Opens a folder; a run that stands there is continued.

        Raises:
            InvalidInputError: the run there has another plan or other data, its checkpoint is damaged, or another
                process trains there.
            OSError: the folder cannot be made or written to.
        """
        self.trainer, self.samples, self.folder, self.plan = trainer, samples, folder, plan
        self.steps_per_epoch = samples.batches(plan)
        self.epoch = self.batch = 0
        if folder.exists() and not folder.is_dir():
            raise InvalidInputError(f"{folder}: a folder is required for the run, got a file")
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder)
        try:
            self.resumed = self.checkpoint.exists()
            if self.resumed:
                self._resume()
            self._keep_lines(trainer.steps)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets others have the folder."""
        self._lock.release()

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's file."""
        return self.folder / "checkpoint.safetensors"

    @property
    def log(self) -> Path:
        """The log's file."""
        return self.folder / "metrics.jsonl"

    def go(
        self,
        epochs: int,
        save_every: int,
        stopped: Callable[[], bool] = lambda: False,
        report: Callable[[int, float], None] = lambda _, __: None,
    ) -> bool:
        """Trains up to a number of epochs, counted from the run's beginning.

        Args:
            epochs: when to end.
            save_every: steps between checkpoints; the end of each epoch gets one, too.
            stopped: asked after every step; if true, the run is saved and ends.
            report: called with every step's epoch and loss.

        Returns:
            Whether all epochs are done.

        Raises:
            NotFiniteError: a loss or a weight is no longer finite, and the trainer is to stop there.
            OSError: the log or a checkpoint cannot be written, for example to a full disk.
            After any error the last checkpoint is as it was.
        """
        try:
            with self.log.open("a", encoding="utf-8") as log:
                return self._go(log, epochs, save_every, stopped, report)
        except NotFiniteError as error:
            raise NotFiniteError(f"{error}; {self._kept()}") from error
        except OSError as error:
            self._keep_lines(self.trainer.steps)
            raise OSError(f"{self.folder}: the run cannot be written: {error}; {self._kept()}") from error

    def _go(
        self,
        log: TextIO,
        epochs: int,
        save_every: int,
        stopped: Callable[[], bool],
        report: Callable[[int, float], None],
    ) -> bool:
        while self.epoch < epochs:
            for feeds in self.samples.epoch(self.plan, self.epoch, self.batch):
                loss = self.trainer.step(feeds).loss
                # JSON has no name for what is not a number.
                kept = loss if math.isfinite(loss) else None
                log.write(json.dumps({"step": self.trainer.steps, "epoch": self.epoch, "loss": kept}) + "\n")
                report(self.epoch, loss)
                self.batch += 1
                if stopped():
                    self._save(log)
                    return False
                if self.trainer.steps % save_every == 0:
                    self._save(log)
            self.epoch, self.batch = self.epoch + 1, 0
            self._save(log)
        return True

    def losses(self) -> list[dict[str, Any]]:
        """The log's lines; a loss that is not finite is `None`.

        Raises:
            InvalidInputError: a line is not one that a run writes.
        """
        lines = []
        for number, line in enumerate(self.log.read_bytes().splitlines(), start=1):
            try:
                lines.append(json.loads(line))
                match lines[-1]:
                    case {"step": int(), "loss": int() | float() | None}:
                        continue
            except (ValueError, RecursionError):
                pass
            raise InvalidInputError(f"{self.log}: line {number} requires a step and a loss, got {line[:80]!r}")
        return lines

    def _notes(self) -> dict[str, Any]:
        return {**self.plan.notes(), "samples": self.samples.count}

    def _save(self, log: TextIO) -> None:
        if self.trainer.on_nan != "ignore":
            self.trainer.check_finite()
        # The log is on the disk first, so that a checkpoint's steps are always in it.
        log.flush()
        os.fsync(log.fileno())
        self.trainer.save(self.checkpoint, {**self._notes(), "epoch": self.epoch, "batch": self.batch})

    def _kept(self) -> str:
        kept = "is as it was" if self.checkpoint.exists() else "was not yet written"
        return f"the checkpoint {self.checkpoint} {kept}"

    def _resume(self) -> None:
        # What says best why the run cannot go on is looked at first.
        _, _, notes = checkpoint.progress(self.checkpoint, checkpoint.read(self.checkpoint)[1])
        for name, value in self._notes().items():
            if notes.get(name) != value:
                raise InvalidInputError(
                    f"{self.folder}: {name} requires {notes.get(name)}, as the run there has it, got {value}"
                )
        match notes:
            case {"epoch": int(epoch), "batch": int(batch)} if epoch >= 0 and 0 <= batch <= self.steps_per_epoch:
                pass
            case _:
                raise InvalidInputError(f"{self.checkpoint}: a checkpoint of a run is required, got none of an epoch")
        try:
            self.trainer.resume(self.checkpoint)
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.folder}: the run there does not fit the model: {error}") from error
        self.epoch, self.batch = epoch, batch

    def _keep_lines(self, steps: int) -> None:
        """Drops what was logged after the checkpoint, since those steps are done again, and a line that is cut off."""
        if not self.log.exists():
            return
        data = self.log.read_bytes()
        kept = [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")][:steps]
        os.truncate(self.log, sum(map(len, kept)))


def _lock(folder: Path) -> BaseFileLock:
    with needed_by("a run"):
        from filelock import FileLock, Timeout
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InvalidInputError(
            f"{folder}: a folder of its own is required for the run, got one in which another process trains"
        ) from error
    return lock
