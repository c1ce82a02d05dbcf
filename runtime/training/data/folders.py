"""Files of numpy: one `.npz` file, a folder of `.npz` shards, a folder with a mapped `.npy` file per input."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lstm_lower.errors import InvalidInputError, damage_told
from lstm_lower.records.files import leads_elsewhere, protect
from lstm_lower.runtime import feeds
from lstm_lower.runtime.training.data.layout import Array, Layout
from lstm_lower.runtime.training.data.table import Padding, Table

# Of a fingerprint: up to which size a file is read whole, and else how many bytes at each place.
_SEEN_WHOLE = 1 << 20
_SAMPLED_BYTES = 4096


def file_stem(name: str) -> str:
    """What a file of an input is called, without its suffix: `ids_0` for `ids:0`."""
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


def fingerprint_of(paths: Sequence[Path]) -> str:
    """A digest of files, their names and sizes; of a large one its beginning, its middle and its end."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        places, length = ((0, size // 2, size - _SAMPLED_BYTES), _SAMPLED_BYTES) if size > _SEEN_WHOLE else ((0,), size)
        with path.open("rb") as file:
            for place in places:
                file.seek(place)
                digest.update(file.read(length))
    return digest.hexdigest()


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

    def fingerprint(self) -> str:
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
