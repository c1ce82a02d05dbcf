"""A batch divided into shards of rows, and what the shards return put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.passes.training.evaluation import evaluation_of
from lstm_lower.runtime.session import Session
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.learner import Reduction
from lstm_lower.runtime.values import signature

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class ShardRows:
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

    def divide(self, feeds: Mapping[str, Array], parts: int) -> list[ShardRows]:
        """Divides a batch into at most so many shards, the first of which have a row more; none is empty.

        Raises:
            InvalidInputError: inputs differ in their number of rows, or there are none.
        """
        count = self.count(feeds)
        sizes = [count // parts + (number < count % parts) for number in range(min(parts, count))]
        return self.cut(feeds, sizes)

    def cut(self, feeds: Mapping[str, Array], sizes: Sequence[int]) -> list[ShardRows]:
        """Shards of given numbers of rows."""
        shards, start = [], 0
        for size in sizes:
            part = {
                name: np.take(array, range(start, start + size), self._axes[name]) if name in self._axes else array
                for name, array in feeds.items()
            }
            shards.append(ShardRows(part, size))
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


# Whether a loss is the mean or the sum over the rows of a batch: found by trying.


# Relative difference, by the dtype of the loss, that the order of sums accounts for.
_TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 2e-5, "float64": 1e-9}


def loss_of(step: ir.Model, state: Mapping[str, Array], name: str) -> Callable[[Mapping[str, Array]], Array]:
    """The loss of feeds under a state, without what is drawn, and without statistics of the batch.

    Args:
        step: the training step.
        state: state input -> value.
        name: of the loss.

    Raises:
        InvalidInputError: it is not known how the step is evaluated.
    """
    try:
        session = Session(evaluation_of(step))
    except UnsupportedOpError as error:
        raise InvalidInputError(
            "workers must know whether the loss is a mean or a sum over rows, which cannot be tried here: "
            f"reduction='mean' or 'sum' says it ({error})"
        ) from error

    def loss(feeds: Mapping[str, Array]) -> Array:
        values = {**state, **feeds}
        return session.run({each: values[each] for each in session.inputs if each in values}, [name])[name]

    return loss


def reduction_of(
    loss: Callable[[Mapping[str, Array]], Array], rowwise: Rowwise, feeds: Mapping[str, Array]
) -> Reduction:
    """Compares the loss of a batch with the losses of its first row and of the others.

    Args:
        loss: of feeds, always the same for the same ones.
        rowwise: where the rows lie.
        feeds: a batch of at least two rows.

    Raises:
        InvalidInputError: it is neither the mean nor the sum of them, or both.
    """
    count = rowwise.count(feeds)
    whole = loss(feeds)
    first, rest = (float(loss(part.feeds)) for part in rowwise.cut(feeds, [1, count - 1]))
    candidates: dict[Reduction, float] = {"mean": (first + rest * (count - 1)) / count, "sum": first + rest}
    bound = _TOLERANCE.get(whole.dtype.name, 2e-5) * (abs(first) + abs(rest))
    fitting = [name for name, value in candidates.items() if abs(value - float(whole)) <= bound]
    if len(fitting) == 1:
        return fitting[0]
    raise InvalidInputError(
        f"workers require a loss that is the mean or the sum over rows, got {float(whole):.6g} for {count} rows, "
        f"{first:.6g} for the first and {rest:.6g} for the others; reduction='mean' weighs the workers by their rows, "
        "reduction='sum' adds them up"
    )
