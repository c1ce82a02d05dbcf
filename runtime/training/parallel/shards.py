"""A batch divided into shards of rows, and what the shards return put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.values import signature

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Some rows of a batch.

    Attributes:
        feeds: data input -> its rows; a single number is the same for all.
        count: number of rows.
    """

    feeds: dict[str, Array]
    count: int


class Rowwise:
    """Where the rows lie in a model's data inputs and outputs."""

    def __init__(self, layout: Layout, outputs: Mapping[str, Any]) -> None:
        """Takes the axes of the inputs from where the samples of training data lie.

        Args:
            layout: of the data inputs.
            outputs: outputs of the step as onnxruntime declares them.

        Raises:
            InvalidInputError: the model fixes the number of rows, or has no data inputs.
        """
        fields = [field for field in layout.fields.values() if field.shape]
        if not fields or layout.batch_size is not None:
            forms = ", ".join(f"'{field.name}' {field.signature}" for field in fields)
            raise InvalidInputError(
                f"workers require a model that leaves the number of rows open, got {forms or 'no data inputs'}"
            )
        self._outputs = outputs
        # A single number is the same for all rows.
        self._axes = {field.name: field.axis for field in fields}
        self._rows = {field.shape[field.axis] for field in fields}

    def divide(self, feeds: Mapping[str, Array], parts: int) -> list[Rows]:
        """Divides a batch into at most so many shards, the first of which have a row more; none is empty.

        Raises:
            InvalidInputError: inputs differ in their number of rows, or there are none.
        """
        count = self.count(feeds)
        sizes = [count // parts + (number < count % parts) for number in range(min(parts, count))]
        return self.cut(feeds, sizes)

    def cut(self, feeds: Mapping[str, Array], sizes: Sequence[int]) -> list[Rows]:
        """Shards of given numbers of rows."""
        shards, start = [], 0
        for size in sizes:
            part = {
                name: np.take(array, range(start, start + size), self._axes[name]) if name in self._axes else array
                for name, array in feeds.items()
            }
            shards.append(Rows(part, size))
            start += size
        return shards

    def count(self, feeds: Mapping[str, Array]) -> int:
        """Number of rows of a batch.

        Raises:
            InvalidInputError: inputs differ in it, or it is 0.
        """
        counts = {name: feeds[name].shape[axis] for name, axis in self._axes.items()}
        if len(set(counts.values())) != 1 or not all(counts.values()):
            raise InvalidInputError(f"workers require as many rows in every input, at least 1, got {counts}")
        return int(next(iter(counts.values())))

    def joined(self, name: str, parts: Sequence[Array], counts: Sequence[int]) -> Array:
        """An output of all shards: rows one after the other, numbers as the mean over all rows.

        Args:
            name: of the output.
            parts: what each shard returned.
            counts: rows of each shard.

        Raises:
            InvalidInputError: the output is neither.
        """
        if len(parts) == 1:
            return parts[0]
        declared = self._outputs[name]
        axes = [
            axis
            for axis, size in enumerate(declared.shape)
            if not isinstance(size, int) and all(part.shape[axis] == n for part, n in zip(parts, counts, strict=True))
        ]
        # Where several sizes happen to be as many, the one that has the rows' name counts.
        axes = [axis for axis in axes if declared.shape[axis] in self._rows - {None}] or axes
        if len(axes) == 1:
            return np.concatenate(parts, axes[0])
        if parts[0].size == 1 and parts[0].dtype.kind not in "iub":
            return mean(parts, counts)
        raise InvalidInputError(
            f"output '{name}' requires rows or a floating-point number to be put together from {len(parts)} workers, "
            f"got {signature(declared)}; ask for it in a step without workers"
        )


def mean(parts: Sequence[Array], counts: Sequence[int]) -> Array:
    """The mean over all rows of what is a mean over the rows of each shard."""
    wide = sum(np.asarray(part, np.float64) * count for part, count in zip(parts, counts, strict=True))
    return np.asarray(wide / sum(counts), parts[0].dtype)
