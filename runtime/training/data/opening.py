"""What a user hands over as data, as a source of batches."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.data import columns, folders
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.data.source import OneTable, ShardedSource, Shards, Source
from lstm_lower.runtime.training.data.streams import ForeignSource, StreamSource, named
from lstm_lower.runtime.training.data.table import Padding, Table

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


def _of_path(path: Path, layout: Layout, padding: Padding, unread: Callable[[str], None]) -> Shards:
    if path.is_dir():
        return _of_folder(path, layout, padding, unread)
    if path.suffix in (*columns.PARQUET, *columns.ARROW):
        return _tell(columns.ColumnShards([path], layout, padding), path, unread)
    if path.is_file() and path.suffix != ".npz" and not zipfile.is_zipfile(path):
        raise InvalidInputError(
            f"{path}: data requires a .npz, Parquet or Arrow file, or a folder of such files or of a .npy file per "
            f"input, got {f'a file that ends in {path.suffix}' if path.suffix else 'another file'}"
        )
    table, others = folders.single_file(path, layout, padding)
    if others:
        unread(f"{path}: {', '.join(others)}")
    return OneTable(table)


def _of_folder(folder: Path, layout: Layout, padding: Padding, unread: Callable[[str], None]) -> Shards:
    kinds = {"npz": (".npz",), "npy": (".npy",), "columns": (*columns.PARQUET, *columns.ARROW)}
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith((".", "_")))
    found = {kind: [path for path in files if path.suffix in suffixes] for kind, suffixes in kinds.items()}
    chosen = [kind for kind, paths in found.items() if paths]
    if len(chosen) != 1:
        what = " and ".join(f"{len(found[kind])} of kind {kind}" for kind in chosen) or "none of them"
        raise InvalidInputError(
            f"{folder}: files of one kind are required (.npz shards, a .npy file per input, Parquet or Arrow), "
            f"got {what}"
        )
    (kind,) = chosen
    if kind == "npy":
        return OneTable(folders.mapped(folder, layout, padding))
    if kind == "npz":
        return folders.NpzShards(found[kind], layout, padding)
    return _tell(columns.ColumnShards(found[kind], layout, padding), folder, unread)


def _tell(shards: columns.ColumnShards, path: Path, unread: Callable[[str], None]) -> Shards:
    if shards.unread:
        unread(f"{path}: {', '.join(shards.unread)}")
    return shards
