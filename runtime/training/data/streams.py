"""Batches that are made elsewhere: an iterable, such as a DataLoader or a tf.data.Dataset, a function, or a source.

Who makes them may fill the same arrays again for the next batch, as many loaders do, and batches are read ahead. So
each is copied before the next one is asked for.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_lower.dtypes import native
from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.data.layout import Batch, Layout
from lstm_lower.runtime.training.data.source import Order, Source
from lstm_lower.runtime.training.data.table import Padding, Table


class StreamSource:
    """Batches as they come: their sizes and their order are the stream's own.

    A batch is a mapping by input name, or a tuple in the order of the inputs.
    """

    def __init__(
        self,
        data: Iterable[Any] | Callable[..., Iterable[Any]],
        layout: Layout,
        padding: Padding,
        names: Sequence[str],
    ) -> None:
        """Takes a stream.

        Args:
            data: an iterable, or a function that returns one; a function with a parameter gets the epoch's number.
            layout: the inputs.
            padding: of sequences with different lengths; they cannot be put into buckets.
            names: what the parts of a tuple are, where it has more than the layout has inputs.

        Raises:
            InvalidInputError: there are buckets, or the padding does not fit the inputs.
        """
        if padding.buckets:
            raise InvalidInputError("buckets require samples, got batches that are already made; pad={...} pads these")
        padding.check(layout)
        self.count: int | None = None
        self.layout, self._data, self._padding, self._names = layout, data, padding, list(names)
        self._left = 1 if isinstance(data, Iterator) else math.inf

    def batches(self, order: Order) -> int | None:  # noqa: ARG002 (a stream has its own)
        return None

    def fingerprint(self) -> str | None:
        return None

    def check_epochs(self, count: int) -> None:
        if count > self._left:
            raise InvalidInputError(
                f"data requires what can be read again in every epoch, got a {type(self._data).__name__}, which is "
                "used up after one pass; a function that makes it anew (data=lambda: batches()) can be"
            )

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:  # noqa: ARG002 (as above)
        yielded = False
        for batch in itertools.islice(self._begin(epoch), first, None):
            yielded = True
            yield self._feeds(batch)
        if not yielded and not first:
            raise InvalidInputError(f"data requires at least one batch in every epoch, got none in epoch {epoch + 1}")

    def _begin(self, epoch: int) -> Iterator[Any]:
        data = self._data
        if callable(data):
            made = data(epoch) if _takes_an_epoch(data) else data()
            if not isinstance(made, Iterable):
                raise InvalidInputError(f"data requires a function that returns batches, got {type(made).__name__}")
            return iter(made)
        self.check_epochs(1)
        self._left -= 1
        return iter(data)

    def _feeds(self, batch: Any) -> Batch:
        if not isinstance(batch, Mapping):
            batch = named(batch, self.layout, self._names, "a batch")
        return _copied(Table.of(self.layout, batch, self._padding, "a batch").feeds(self._padding))


class ForeignSource:
    """A source of a user's own, whose batches may be refilled."""

    def __init__(self, source: Source) -> None:
        self._source, self.count, self.layout = source, source.count, source.layout
        self.batches, self.check_epochs = source.batches, source.check_epochs

    def fingerprint(self) -> str | None:
        return None

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:
        for batch in self._source.epoch(order, epoch, first):
            yield _copied(batch)


def _copied(batch: Mapping[str, Any]) -> Batch:
    return {
        name: np.array(native(value, f"'{name}' of a batch")) if hasattr(value, "__array__") else copy.deepcopy(value)
        for name, value in batch.items()
    }


def named(values: Any, layout: Layout, names: Sequence[str], what: str) -> dict[str, Any]:
    """Parts of a tuple by input name.

    Args:
        values: a tuple or list, or the only part itself.
        layout: the inputs.
        names: what parts there may be, of which the layout's inputs are some.
        what: what it is, for messages.

    Raises:
        InvalidInputError: there are others than inputs.
    """
    parts = list(values) if isinstance(values, (tuple, list)) else [values]
    for wanted in (list(layout.fields), list(names)):
        if len(parts) == len(wanted):
            return dict(zip(wanted, parts, strict=True))
    raise InvalidInputError(
        f"{what} requires a value for each of {list(layout.fields)}, in this order or by name, got {len(parts)}"
    )


def _takes_an_epoch(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(0)
    except (TypeError, ValueError):
        return False
    return True
