"""A training run in a folder: epochs over arrays, a log of every step, checkpoints, and going on where one stood.

The folder holds `checkpoint.safetensors` (state, and where the run is) and `metrics.jsonl` (one line per step). The
order of samples depends on the seed and the epoch alone, so a run that was killed and resumed equals one that was not,
bit for bit.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.trainer import Trainer

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What decides a run's numbers, besides model and data.

    Attributes:
        batch_size: samples per step; the last step of an epoch has fewer where the model leaves the size open.
        seed: of the order of samples.
        shuffle: whether to change the order in every epoch.
    """

    batch_size: int = 32
    seed: int = 0
    shuffle: bool = True


class Samples:
    """Arrays divided into samples along the axis whose size the model leaves open, the first one of each input.

    Attributes:
        count: number of samples.
    """

    def __init__(self, trainer: Trainer, arrays: Mapping[str, Array]) -> None:
        missing = [name for name in trainer.inputs if name not in arrays]
        if missing:
            raise InvalidInputError(f"data requires an array '{missing[0]}', got {sorted(arrays)}")
        self._arrays = {name: np.asarray(arrays[name]) for name in trainer.inputs}
        declared = {value.name: value.shape for value in trainer.session.ort.get_inputs()}
        self._axes = {}
        for name, array in self._arrays.items():
            sizes = declared[name]
            if len(sizes) != array.ndim or not array.ndim:
                raise InvalidInputError(f"data '{name}' requires rank {len(sizes)}, at least 1, got {array.ndim}")
            self._axes[name] = next((i for i, size in enumerate(sizes) if not isinstance(size, int)), 0)
        self._fixed = {size for name, axis in self._axes.items() if isinstance(size := declared[name][axis], int)}
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
            raise InvalidInputError(
                f"batch size requires {sorted(self._fixed)}, as the model has it, got {plan.batch_size}"
            )
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
    """A run in a folder.

    Attributes:
        epoch: the epoch it is in.
        batch: the next batch of that epoch.
    """

    def __init__(self, trainer: Trainer, samples: Samples, folder: Path, plan: Plan) -> None:
        """Opens a folder; a run that stands there is continued.

        Raises:
            InvalidInputError: the run there has another plan or other data, or its checkpoint is damaged.
        """
        self.trainer, self.samples, self.folder, self.plan = trainer, samples, folder, plan
        self.steps_per_epoch = samples.batches(plan)
        self.epoch = self.batch = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.resumed = self.checkpoint.exists()
        if self.resumed:
            self._resume()
        self._keep_lines(trainer.steps)

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
        report: Callable[[float], None] = lambda _: None,
    ) -> bool:
        """Trains up to a number of epochs, counted from the run's beginning.

        Args:
            epochs: when to end.
            save_every: steps between checkpoints; the end of each epoch gets one, too.
            stopped: asked after every step; if true, the run is saved and ends.
            report: called with every step's loss.

        Returns:
            Whether all epochs are done.
        """
        with self.log.open("a", encoding="utf-8") as log:
            while self.epoch < epochs:
                for feeds in self.samples.epoch(self.plan, self.epoch, self.batch):
                    loss = self.trainer.step(feeds).loss
                    line = {"step": self.trainer.steps, "epoch": self.epoch, "loss": loss}
                    log.write(json.dumps(line) + "\n")
                    report(loss)
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
        """The log's lines."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def _notes(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self.plan), "samples": self.samples.count}

    def _save(self, log: Any) -> None:
        # The log is on the disk first, so that a checkpoint's steps are always in it.
        log.flush()
        os.fsync(log.fileno())
        self.trainer.save(self.checkpoint, {**self._notes(), "epoch": self.epoch, "batch": self.batch})

    def _resume(self) -> None:
        notes = self.trainer.resume(self.checkpoint)
        for name, value in self._notes().items():
            if notes.get(name) != value:
                raise InvalidInputError(
                    f"{self.folder}: {name} requires {notes.get(name)}, as the run there has it, got {value}"
                )
        self.epoch, self.batch = notes["epoch"], notes["batch"]

    def _keep_lines(self, steps: int) -> None:
        """Drops what was logged after the checkpoint: those steps are done again."""
        if not self.log.exists():
            return
        kept = [line for line in self.log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")][:steps]
        partial = self.log.with_name(f".{self.log.name}.partial")
        partial.write_bytes(b"".join(kept))
        partial.replace(self.log)
