"""Data as users hand it over, opened as a source of batches."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import os
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from lstm_lower.dtypes import native
from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.data import files
from lstm_lower.runtime.training.data.layout import Batch, Fingerprint, Layout
from lstm_lower.runtime.training.data.source import OneTable, Order, ShardedSource, Shards, Source
from lstm_lower.runtime.training.data.table import Padding, Table

# Batches that are made elsewhere: an iterable, such as a DataLoader or a tf.data.Dataset, a function, or a source.
# Who makes them may fill the same arrays again for the next batch, as many loaders do, and batches are read ahead. So
# each is copied before the next one is asked for.


# Of iterators, which yield a batch only once: those that were looked at before they were opened.
_SEEN: weakref.WeakKeyDictionary[Iterator[Any], list[Any]] = weakref.WeakKeyDictionary()


def first_batches(data: Iterable[Any] | Callable[..., Iterable[Any]], count: int) -> list[Any]:
    """The first batches of a stream; an iterator that is opened afterwards yields them again.

    Raises:
        InvalidInputError: it is an iterator that Python lets nobody know again.
    """
    if not isinstance(data, Iterator):
        return list(itertools.islice(iter(_called(data, 0) if callable(data) else data), count))
    try:
        seen = _SEEN.setdefault(data, [])
    except TypeError as error:
        raise InvalidInputError(
            f"data requires what can be read again, got a {type(data).__name__}, whose first batch would be lost; a "
            "function that makes it anew (data=lambda: batches()) can be"
        ) from error
    seen += itertools.islice(data, max(0, count - len(seen)))
    return seen[:count]


def _whole(data: Iterator[Any]) -> Iterator[Any]:
    """All batches of an iterator, those that were looked at first."""
    try:
        return itertools.chain(_SEEN.pop(data, []), data)
    except TypeError:
        return data


def _called(data: Callable[..., Iterable[Any]], epoch: int) -> Iterable[Any]:
    batches = data(epoch) if _takes_an_epoch(data) else data()
    if not isinstance(batches, Iterable):
        raise InvalidInputError(f"data requires a function that returns batches, got {type(batches).__name__}")
    return batches


class StreamSource:
    """Batches as they come: their sizes and their order are the stream's own.

    A batch is a mapping by input name, or a tuple in the order of the inputs, or what Keras' `fit` takes: inputs,
    targets and weights, each of them one or several, in order or by name. A PyDataset of Keras is told of epochs.
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

    def fingerprint(self) -> Fingerprint | None:
        return None

    def check_epochs(self, count: int) -> None:
        if count > self._left:
            raise InvalidInputError(
                f"data requires what can be read again in every epoch, got a {type(self._data).__name__}, which is "
                "used up after one pass; a function that makes it anew (data=lambda: batches()) can be"
            )

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:  # noqa: ARG002 (as above)
        yielded = False
        self._tell("on_epoch_begin")
        for batch in itertools.islice(self._begin(epoch), first, None):
            yielded = True
            yield self._feeds(batch)
        if not yielded and not first:
            raise InvalidInputError(f"data requires at least one batch in every epoch, got none in epoch {epoch + 1}")
        self._tell("on_epoch_end")

    def _tell(self, what: str) -> None:
        told = getattr(self._data, what, None)
        if callable(told):
            told()

    def _begin(self, epoch: int) -> Iterator[Any]:
        data = self._data
        if callable(data):
            return iter(_called(data, epoch))
        self.check_epochs(1)
        self._left -= 1
        return _whole(data) if isinstance(data, Iterator) else iter(data)

    def _feeds(self, batch: Any) -> Batch:
        if not isinstance(batch, Mapping) or not batch.keys() & {*self.layout.fields, *self._names}:
            batch = named(batch, self.layout, self._names, "a batch")
        return _copied(Table.of(self.layout, batch, self._padding, "a batch").feeds(self._padding))


class ForeignSource:
    """A source of a user's own, whose batches may be refilled."""

    def __init__(self, source: Source) -> None:
        self._source, self.count, self.layout = source, source.count, source.layout
        self.batches, self.check_epochs = source.batches, source.check_epochs

    def fingerprint(self) -> Fingerprint | None:
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
    while len(parts) > 1 and parts[-1] is None:
        parts.pop()
    for wanted in (list(layout.fields), list(names)):
        if len(parts) == len(wanted) and not any(isinstance(part, Mapping) for part in parts):
            return dict(zip(wanted, parts, strict=True))
        if (by_role := _by_role(parts, wanted)) is not None:
            return by_role
    raise InvalidInputError(
        f"{what} requires a value for each of {list(layout.fields)}, in this order or by name, got {len(parts)}"
    )


# What Keras calls the parts of a batch; several of a kind are called `x/<name>`.
_ROLES = ("x", "y", "sample_weight")


def _by_role(parts: Sequence[Any], names: Sequence[str]) -> dict[str, Any] | None:
    """Inputs, targets and weights, each of them one or several, by input name; `None` where they do not fit."""
    feeds: dict[str, Any] = {}
    for role, part in itertools.zip_longest(_ROLES, parts[: len(_ROLES)]):
        wanted = [name for name in names if name == role or name.startswith(f"{role}/")]
        leaves = dict(_leaves(part, role)) if isinstance(part, (Mapping, tuple, list)) and wanted != [role] else {}
        if wanted == [role] and isinstance(part, Mapping) and len(part) == 1:
            leaves = {role: next(iter(part.values()))}
        elif wanted == [role]:
            leaves = {role: part}
        elif not isinstance(part, Mapping) and len(leaves) == len(wanted):
            leaves = dict(zip(wanted, leaves.values(), strict=True))
        if any(leaves.get(name) is None for name in wanted):
            return None
        feeds |= {name: leaves[name] for name in wanted}
    return feeds if len(parts) <= len(_ROLES) and len(feeds) == len(names) else None


def _leaves(part: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The ends of a structure, by their names as `from_keras` has them."""
    if not isinstance(part, (Mapping, tuple, list)):
        yield path, part
        return
    # Of what is within one of them, the names are put together by dots.
    mark = "." if "/" in path else "/"
    for key, value in part.items() if isinstance(part, Mapping) else enumerate(part):
        yield from _leaves(value, f"{path}{mark}{key}")


def _takes_an_epoch(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(0)
    except (TypeError, ValueError):
        return False
    return True


# A path; arrays by name, or in the order of the inputs; batches, or a function that makes them.
Data = (
    str
    | os.PathLike[str]
    | Mapping[str, Any]
    | tuple[Any, ...]
    | np.ndarray[Any, Any]
    | Iterable[Any]
    | Callable[..., Iterable[Any]]
    | Source
)


def open_data(
    data: Data,
    layout: Layout,
    padding: Padding | None = None,
    *,
    window: int = 1,
    names: Sequence[str] | None = None,
    unread: Callable[[str], None] = lambda _: None,
) -> Source:
    """Opens data.

    Args:
        data: one of
            - a mapping of arrays (also mapped ones) or lists of samples by input name, or a tuple of them in the order
              of the inputs, or one array for a model with one input;
            - a path: a `.npz` file, a Parquet or Arrow file, or a folder of `.npz` shards, of Parquet or Arrow files,
              or of one `.npy` file per input;
            - samples by number, such as a TensorDataset or a Subset of PyTorch, which are read into memory;
            - an iterable of batches (mappings or tuples), or a function that returns one, given the epoch's number if
              it has a parameter;
            - a `Source`.
        layout: the inputs that batches are for.
        padding: of sequences with different lengths.
        window: shards whose samples are mixed when the order changes.
        names: what the parts of tuples are, where they have more than the layout has inputs.
        unread: told what of a file is no input.

    Raises:
        InvalidInputError: it is not one of these, or does not fit the inputs.
        FileNotFoundError: there is no such file or folder.
        MissingPackageError: a Parquet or Arrow file, and pyarrow is not installed.
    """
    padding, parts = padding or Padding(), list(layout.fields if names is None else names)
    if _is_dataset(data):
        data = _columns(data)
    if isinstance(data, (str, os.PathLike)):
        return ShardedSource(_of_path(Path(data), layout, padding, unread), padding, window)
    if isinstance(data, tuple) or hasattr(data, "__array__"):
        data = named(data, layout, parts, "data")
    if isinstance(data, Mapping):
        return ShardedSource(OneTable(Table.of(layout, data, padding)), padding)
    if isinstance(data, (ShardedSource, StreamSource, ForeignSource)):
        return data
    if hasattr(data, "epoch") and hasattr(data, "batches") and hasattr(data, "layout"):
        return ForeignSource(cast("Source", data))
    if callable(data) or isinstance(data, Iterable):
        return StreamSource(data, layout, padding, parts)
    raise InvalidInputError(f"data requires arrays, a path, or an iterable of batches, got {type(data).__name__}")


def _is_dataset(data: Any) -> bool:
    """Whether data are samples by number, as PyTorch's map-style datasets."""
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (Iterable, str))


def _columns(data: Any) -> Any:
    """The samples of a dataset in columns."""
    if isinstance(tensors := getattr(data, "tensors", None), tuple):
        return tensors
    samples = [data[place] for place in range(len(data))]
    if samples and isinstance(samples[0], Mapping):
        return {name: [sample[name] for sample in samples] for name in samples[0]}
    whole = [sample if isinstance(sample, (tuple, list)) else (sample,) for sample in samples]
    return tuple(list(column) for column in zip(*whole, strict=True))


def _of_path(path: Path, layout: Layout, padding: Padding, unread: Callable[[str], None]) -> Shards:
    if path.is_dir():
        return _of_folder(path, layout, padding, unread)
    if path.suffix in (*files.PARQUET, *files.ARROW):
        return _tell(files.ColumnShards([path], layout, padding), path, unread)
    if path.is_file() and path.suffix != ".npz" and not zipfile.is_zipfile(path):
        raise InvalidInputError(
            f"{path}: data requires a .npz, Parquet or Arrow file, or a folder of such files or of a .npy file per "
            f"input, got {f'a file that ends in {path.suffix}' if path.suffix else 'another file'}"
        )
    table, others = files.single_file(path, layout, padding)
    if others:
        unread(f"{path}: {', '.join(others)}")
    return OneTable(table)


def _of_folder(folder: Path, layout: Layout, padding: Padding, unread: Callable[[str], None]) -> Shards:
    kinds = {"npz": (".npz",), "npy": (".npy",), "columns": (*files.PARQUET, *files.ARROW)}
    paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith((".", "_")))
    by_kind = {kind: [path for path in paths if path.suffix in suffixes] for kind, suffixes in kinds.items()}
    chosen = [kind for kind in by_kind if by_kind[kind]]
    if len(chosen) != 1:
        what = " and ".join(f"{len(by_kind[kind])} of kind {kind}" for kind in chosen) or "none of them"
        raise InvalidInputError(
            f"{folder}: files of one kind are required (.npz shards, a .npy file per input, Parquet or Arrow), "
            f"got {what}"
        )
    (kind,) = chosen
    if kind == "npy":
        return OneTable(files.mapped(folder, layout, padding))
    if kind == "npz":
        return files.NpzShards(by_kind[kind], layout, padding)
    return _tell(files.ColumnShards(by_kind[kind], layout, padding), folder, unread)


def _tell(shards: files.ColumnShards, path: Path, unread: Callable[[str], None]) -> Shards:
    if shards.unread:
        unread(f"{path}: {', '.join(shards.unread)}")
    return shards
