"""Sources of a training loop's batches: tables and shards, in an order that a seed and the epoch decide."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.data.layout import Array, Batch, Fingerprint, Layout
from lstm_lower.runtime.training.data.table import Padding, Table, joined


@dataclasses.dataclass(frozen=True)
class Order:
    """How samples are grouped and ordered.

    Attributes:
        batch_size: samples per batch; the last one of an epoch has fewer where the model leaves the size open.
        shuffle: whether to change the order in every epoch.
        seed: of that order.
    """

    batch_size: int = 32
    shuffle: bool = True
    seed: int = 0


class Source(Protocol):
    """Batches, epoch by epoch."""

    @property
    def count(self) -> int | None:
        """Samples per epoch, or `None` where only reading them tells."""
        ...

    @property
    def layout(self) -> Layout:
        """The inputs that batches are for."""
        ...

    def batches(self, order: Order) -> int | None:
        """Batches per epoch, or `None` where only reading them tells.

        Raises:
            InvalidInputError: there is none, or the model fixes another batch size.
        """
        ...

    def check_epochs(self, count: int) -> None:
        """Checks that the data can be read so many times.

        Raises:
            InvalidInputError: they are used up before.
        """
        ...

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from one on; the same ones whenever seed and epoch are the same."""
        ...

    def fingerprint(self) -> Fingerprint | None:
        """A digest by which other data of the same size are told, or `None` where only reading them tells."""
        ...


class Shards(Protocol):
    """Parts of the data that are read one at a time."""

    @property
    def counts(self) -> Sequence[int]:
        """Samples in each; known without reading them."""
        ...

    @property
    def layout(self) -> Layout:
        """The inputs."""
        ...

    def load(self, number: int) -> Table:
        """Reads one."""
        ...

    def fingerprint(self) -> Fingerprint:
        """A digest by which other data of the same size are told, mostly; cheap."""
        ...


class OneTable:
    """A table as the only shard: arrays in memory, or mapped files, of which a batch's samples alone are read."""

    def __init__(self, table: Table) -> None:
        self.counts, self.layout, self._table = [table.count], table.layout, table

    def load(self, number: int) -> Table:
        assert number == 0
        return self._table

    def fingerprint(self) -> Fingerprint:
        return self._table.fingerprint()


class ShardedSource:
    """Batches of samples from shards.

    Where the order changes, shards come in another one each epoch, and so do samples within `window` shards, which
    are held in memory together. Batches go on over the ends of shards, so that all but the last one are full.
    """

    def __init__(self, shards: Shards, padding: Padding | None = None, window: int = 1) -> None:
        """Takes shards.

        Args:
            shards: the shards.
            padding: of sequences with different lengths.
            window: shards whose samples are mixed.

        Raises:
            InvalidInputError: the padding does not fit the inputs, or the window is no positive number.
        """
        if window < 1:
            raise InvalidInputError(f"window requires at least 1 shard, got {window}")
        self.layout, self.count = shards.layout, sum(shards.counts)
        self._shards, self._padding, self._window = shards, padding or Padding(), window
        self._padding.check(shards.layout)

    def batches(self, order: Order) -> int | None:
        fixed = self.layout.batch_size
        if fixed is not None and fixed != order.batch_size:
            raise InvalidInputError(f"batch size requires {fixed}, as the model has it, got {order.batch_size}")
        if order.batch_size < 1:
            raise InvalidInputError(f"batch size requires at least 1, got {order.batch_size}")
        count = -(-self.count // order.batch_size) if fixed is None else self.count // order.batch_size
        if count == 0:
            raise InvalidInputError(f"data requires at least one batch of {order.batch_size}, got {self.count} samples")
        return None if self._padding.buckets else count

    def check_epochs(self, count: int) -> None:
        """Shards can be read as often as one likes."""

    def fingerprint(self) -> Fingerprint | None:
        return self._shards.fingerprint()

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:
        rng = np.random.default_rng([order.seed, epoch])
        # What of an epoch is done need not be read again, unless lengths decide what is in a batch.
        skipped_rows = 0 if self._padding.buckets else first * order.batch_size
        skipped_batches = first if self._padding.buckets else 0
        numbers = rng.permutation(len(self._shards.counts)) if order.shuffle else np.arange(len(self._shards.counts))
        batches = _Batches(order.batch_size, self._padding, max(1, len(self._padding.buckets)))
        for start in range(0, len(numbers), self._window):
            window = [int(number) for number in numbers[start : start + self._window]]
            count = sum(self._shards.counts[number] for number in window)
            rows = rng.permutation(count) if order.shuffle else np.arange(count)
            if skipped_rows >= count > 0:
                skipped_rows -= count
                continue
            table = joined([self._shards.load(number) for number in window])
            rows, skipped_rows = rows[skipped_rows:], 0
            for batch in batches.add(table, rows):
                if skipped_batches:
                    skipped_batches -= 1
                else:
                    yield batch.feeds(self._padding)
        if self.layout.batch_size is None:
            for batch in batches.rest():
                if skipped_batches:
                    skipped_batches -= 1
                else:
                    yield batch.feeds(self._padding)


class _Batches:
    """Collects samples, bucket by bucket, until a batch is full."""

    def __init__(self, size: int, padding: Padding, buckets: int) -> None:
        self._size, self._padding = size, padding
        self._waiting: list[list[Table]] = [[] for _ in range(buckets)]

    def add(self, table: Table, rows: Array) -> Iterator[Table]:
        """Takes more samples and yields the batches that they complete, in the order of completion."""
        bucket_of = self._padding.bucket_of(table)[rows]
        ready: list[tuple[int, int, Array]] = []
        for bucket, waiting in enumerate(self._waiting):
            places = np.flatnonzero(bucket_of == bucket)
            held = sum(part.count for part in waiting)
            start = 0
            while held + len(places) - start >= self._size:
                end = start + self._size - held
                ready.append((int(places[end - 1]), bucket, rows[places[start:end]]))
                start, held = end, 0
            if start < len(places):
                ready.append((len(rows), bucket, rows[places[start:]]))
        for place, bucket, chosen in sorted(ready, key=lambda entry: entry[:2]):
            parts = [*self._waiting[bucket], table.take(chosen)]
            if place == len(rows):
                self._waiting[bucket] = parts
            else:
                self._waiting[bucket] = []
                yield joined(parts)

    def rest(self) -> Iterator[Table]:
        """The samples that are left, a batch per bucket."""
        for parts in self._waiting:
            if parts:
                yield joined(parts)
