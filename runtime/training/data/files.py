"""Training data in files: folders of arrays, and tables of columns."""

from __future__ import annotations

import contextlib
import hashlib
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError, damage_told
from lstm_lower.extras import needed_by
from lstm_lower.records.files import leads_elsewhere, protect
from lstm_lower.runtime import feeds
from lstm_lower.runtime.training.data.layout import Array, Field, Fingerprint, Layout
from lstm_lower.runtime.training.data.table import Padding, Ragged, Table

# Files of numpy: one `.npz` file, a folder of `.npz` shards, a folder with a mapped `.npy` file per input.


# Of a fingerprint: up to which size a file is read whole, and else how many bytes at each place.
_SEEN_WHOLE = 1 << 20
_SAMPLED_BYTES = 4096


def file_stem(name: str) -> str:
    """The name of an input's file, without its suffix: `ids_0` for `ids:0`."""
    return re.sub(r"[^\w.-]", "_", name)


def mapped(folder: Path, layout: Layout, padding: Padding) -> Table:
    """The `.npy` files of a folder as one table; they are mapped, not read.

    Raises:
        InvalidInputError: an input's file is missing or malformed, or arrays do not fit.
    """
    arrays = {}
    for name in layout.fields:
        stems = [stem for stem in dict.fromkeys((name, file_stem(name))) if not leads_elsewhere(stem)]
        path = next((path for stem in stems if (path := folder / f"{stem}.npy").is_file()), None)
        if path is not None:
            protect(path)
            arrays[name] = _mapped(path)
    return Table.of(layout, arrays, padding, str(folder))


def fingerprint_of(paths: Sequence[Path]) -> Fingerprint:
    """A digest of files, their names and sizes; of a large one its beginning, its middle and its end."""
    digest = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        places, length = ((0, size // 2, size - _SAMPLED_BYTES), _SAMPLED_BYTES) if size > _SEEN_WHOLE else ((0,), size)
        with path.open("rb") as file:
            for place in places:
                file.seek(place)
                digest.update(file.read(length))
    return {"files": digest.hexdigest()}


def _mapped(path: Path) -> Array:
    def told(error: Exception) -> InvalidInputError:
        return InvalidInputError(f"{path}: a .npy file of an array is required, got one that fails to load: {error}")

    with damage_told(told):
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


class NpzShards:
    """Shards in `.npz` files, of which only the headers are read to begin with."""

    def __init__(self, paths: Sequence[Path], layout: Layout, padding: Padding) -> None:
        """Counts the samples.

        Raises:
            InvalidInputError: a file is malformed or lacks an input.
        """
        self.layout, self._paths, self._padding = layout, list(paths), padding
        self.counts = [self._count(path) for path in self._paths]

    def load(self, number: int) -> Table:
        path = self._paths[number]
        table = Table.of(self.layout, feeds.read_arrays(path)[0], self._padding, str(path))
        if table.count != self.counts[number]:
            raise InvalidInputError(
                f"{path}: {self.counts[number]} samples are required, as when the run began, got {table.count}"
            )
        return table

    def fingerprint(self) -> Fingerprint:
        return fingerprint_of(self._paths)

    def _count(self, path: Path) -> int:
        shapes = npz_shapes(path)
        missing = [name for name in self.layout.fields if name not in shapes and name not in self._padding.lengths]
        if missing:
            signature = self.layout.fields[missing[0]].signature
            raise InvalidInputError(f"{path} requires an array '{missing[0]}' {signature}, got {sorted(shapes)}")
        for name, field in self.layout.fields.items():
            if name in shapes and len(shapes[name]) > field.axis:
                return shapes[name][field.axis]
        return 0


def npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays in a `.npz` file, from their headers.

    Raises:
        InvalidInputError: it is no such file.
    """
    shapes = {}
    protect(path)
    with damage_told(lambda error: feeds.no_arrays(path, error)), zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            with archive.open(entry) as stream:
                read = np.lib.format.read_array_header_1_0
                if np.lib.format.read_magic(stream) != (1, 0):
                    read = np.lib.format.read_array_header_2_0
                shape = read(stream)[0]
            shapes[entry.removesuffix(".npy").removeprefix(feeds.FEED_PREFIX)] = shape
    return shapes


def single_file(path: Path, layout: Layout, padding: Padding) -> tuple[Table, list[str]]:
    """A `.npz` file as a table, and the names of its arrays that are no inputs."""
    arrays = feeds.read_arrays(path)[0]
    return Table.of(layout, arrays, padding, str(path)), sorted(set(arrays) - set(layout.fields))


# Tables in columns: Parquet and Arrow files, a column per input, read a row group or a record batch at a time.


PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")


class ColumnShards:
    """Row groups of Parquet files and record batches of Arrow files.

    A row is a sample. A column of lists is an input with further axes; lists of different lengths are sequences to pad.
    """

    def __init__(self, paths: Sequence[Path], layout: Layout, padding: Padding) -> None:
        """Reads how many rows there are.

        Raises:
            InvalidInputError: a file is malformed or lacks a column.
            MissingPackageError: pyarrow is not installed.
        """
        self.layout, self._padding = layout, padding
        self._names = [name for name in layout.fields if name not in padding.lengths]
        self._parts: list[tuple[Path, int]] = []
        self.counts: list[int] = []
        self.unread: list[str] = []
        for path in paths:
            with _explained(path), _opened(path) as file:
                missing = [name for name in self._names if name not in file.names]
                if missing:
                    raise InvalidInputError(
                        f"{path} requires a column '{missing[0]}' {layout.fields[missing[0]].signature}, "
                        f"got {sorted(file.names)}"
                    )
                self.unread = sorted(set(file.names) - set(layout.fields))
                for part, count in enumerate(file.counts):
                    self._parts.append((path, part))
                    self.counts.append(count)

    def fingerprint(self) -> Fingerprint:
        return fingerprint_of(list(dict.fromkeys(path for path, _ in self._parts)))

    def load(self, number: int) -> Table:
        path, part = self._parts[number]
        with _explained(path), _opened(path) as file:
            table = file.read(part, self._names)
            columns = {name: _as_input(table.column(name), self.layout.fields[name], path) for name in self._names}
        return Table.of(self.layout, columns, self._padding, str(path))


def _as_input(arrow: Any, field: Field, path: Path) -> Array | Ragged:
    column = to_numpy(arrow, f"{path}: column '{field.name}'")
    dtype = column.samples[0].dtype if isinstance(column, Ragged) else column.dtype
    if dtype != field.dtype:
        raise InvalidInputError(
            f"{path}: column '{field.name}' requires {field.signature}, got {dtype.name}; "
            f"write the column as {field.dtype.name} (pandas: astype, pyarrow: cast)"
        )
    if isinstance(column, Ragged) or field.axis == 0 or column.ndim <= field.axis:
        return column
    return np.moveaxis(column, 0, field.axis)


def to_numpy(column: Any, what: str) -> Array | Ragged:
    """A column of Arrow with samples along the first axis; lists of different lengths stay apart.

    Raises:
        InvalidInputError: it holds nulls or values that are not numbers, or more than its outer lists differ in length.
    """
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if array.null_count:
        raise InvalidInputError(f"{what} requires numbers in every row, got {array.null_count} nulls")
    if isinstance(array, pa.FixedShapeTensorArray):
        tensor: Array = array.to_numpy_ndarray()
        return tensor
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        inner = to_numpy(array.flatten(), what)
        if isinstance(inner, Ragged):
            raise InvalidInputError(f"{what} requires lists that differ in length at the outer level only, got {kind}")
        return inner.reshape(len(array), kind.list_size, *inner.shape[1:])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = to_numpy(array.flatten(), what)
        if isinstance(inner, Ragged):
            raise InvalidInputError(f"{what} requires lists that differ in length at the outer level only, got {kind}")
        ends = np.asarray(array.offsets, np.int64) - array.offsets[0].as_py() if len(array) else np.zeros(1, np.int64)
        lengths = np.diff(ends)
        if len(set(lengths.tolist())) <= 1:
            return inner.reshape(len(array), lengths[0] if len(lengths) else 0, *inner.shape[1:])
        return Ragged(np.split(inner, ends[1:-1]))
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidInputError(f"{what} requires numbers or lists of them, got {kind}")
    numbers: Array = array.to_numpy(zero_copy_only=False)
    return numbers


class _ParquetFile:
    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._file = pq.ParquetFile(path)
        self.names = self._file.schema_arrow.names
        self.counts = [self._file.metadata.row_group(part).num_rows for part in range(self._file.num_row_groups)]

    def read(self, part: int, names: Sequence[str]) -> Any:
        return self._file.read_row_group(part, columns=list(names))

    def close(self) -> None:
        self._file.close()


class _ArrowFile:
    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._stream = pa.memory_map(str(path))
        self._file = pa.ipc.open_file(self._stream)
        self.names = self._file.schema.names
        self.counts = [self._file.get_batch(part).num_rows for part in range(self._file.num_record_batches)]

    def read(self, part: int, names: Sequence[str]) -> Any:
        return self._file.get_batch(part).select(list(names))

    def close(self) -> None:
        self._stream.close()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with needed_by(f"{path}: a table in columns"):
        import pyarrow as pa  # noqa: F401 (the message comes before any file is opened)
    protect(path)
    with contextlib.closing(_ParquetFile(path) if path.suffix in PARQUET else _ArrowFile(path)) as file:
        yield file


def _explained(path: Path) -> contextlib.AbstractContextManager[None]:
    """Says of bytes that are no such file which file it is."""
    what = f"{path}: a Parquet or Arrow file is required, got one that fails to load"
    return damage_told(lambda error: InvalidInputError(f"{what}: {error}"))
