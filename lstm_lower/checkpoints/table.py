"""Tables of sorted keys and values, in LevelDB's file format: what checkpoints and their indexes are.

A file is a row of blocks: those with the entries, one of further data, and the index, whose values say where the blocks
of entries lie; a footer says where the index lies. Behind each block stand how it is compressed and its checksum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lstm_lower import budget
from lstm_lower.checkpoints.checksums import crc32c, masked, unmasked
from lstm_lower.records.wire import DamageError, varint, varint_bytes

_FOOTER = 48
_MAGIC = 0xDB4775248B80FB57
_TRAILER = 5
_RAW = 0

# Bytes of entries after which a new block begins, and entries after which a key is written whole.
_BLOCK = 1 << 18
_RESTART = 16


class FileRegion:
    """A file of which parts are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file.

        Raises:
            DamageError: it has no such part.
        """
        if offset < 0 or size < 0 or offset + size > self.size:
            raise DamageError(f"{size} bytes at {offset} lie beyond its {self.size}")
        with self.path.open("rb") as file:
            file.seek(offset)
            found = file.read(size)
        if len(found) != size:
            raise DamageError(f"{size} bytes at {offset} lie beyond its end")
        return found


Handle = tuple[int, int]


def is_table(path: Path) -> bool:
    """Whether a file ends as a table does."""
    try:
        region = FileRegion(path)
        return int.from_bytes(region.read(region.size - 8, 8), "little") == _MAGIC
    except (DamageError, OSError):
        return False


def blocks(region: FileRegion) -> Iterator[tuple[bytes, Handle]]:
    """The last key and the place of each block of entries, in order.

    Raises:
        DamageError: the file is no table, or a damaged one.
    """
    footer = region.read(region.size - _FOOTER, _FOOTER) if region.size >= _FOOTER else b""
    if int.from_bytes(footer[-8:], "little") != _MAGIC or not footer:
        raise DamageError("it does not end with a table's footer")
    _, position = _handle(footer, 0)
    index, _ = _handle(footer, position)
    for key, value in entries(region, index):
        yield key, _handle(value, 0)[0]


def entries(region: FileRegion, handle: Handle) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block.

    Raises:
        DamageError: it is damaged.
    """
    offset, size = handle
    stored = region.read(offset, size + _TRAILER)
    content, kind = stored[:size], stored[size]
    if unmasked(int.from_bytes(stored[-4:], "little")) != crc32c(stored[:-4]):
        raise DamageError(f"the checksum of its block at {offset} does not match")
    if kind != _RAW:
        # TensorFlow compresses none, though its tables may be: with Snappy, which is 1.
        raise DamageError(f"its block at {offset} has compression type {kind}, which TensorFlow does not write")
    yield from _entries(content)


def _entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(content[-4:], "little")
    end = len(content) - 4 - 4 * restarts
    if end < 0 or len(content) < 4:
        raise DamageError("a block is too short for its restart points")
    position, key = 0, b""
    while position < end:
        shared, position = varint(content, position)
        added, position = varint(content, position)
        length, position = varint(content, position)
        if shared > len(key) or position + added + length > end:
            raise DamageError("an entry reaches beyond its block")
        budget.charge("a checkpoint whose names begin as others do", size=shared)
        key = key[:shared] + content[position : position + added]
        position += added + length
        yield key, content[position - length : position]


def _handle(content: bytes, position: int) -> tuple[Handle, int]:
    offset, position = varint(content, position)
    size, position = varint(content, position)
    return (offset, size), position


def written(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a table.

    Args:
        items: keys and values, sorted by key.
    """
    content, index = bytearray(), _Block()
    for block in _divided(items):
        index.add(block.key, _appended(content, block))
    further = _appended(content, _Block())
    place = further + _appended(content, index)
    return bytes(content) + place.ljust(_FOOTER - 8, b"\0") + _MAGIC.to_bytes(8, "little")


def _divided(items: Iterable[tuple[bytes, bytes]]) -> Iterator[_Block]:
    block = _Block()
    for key, value in items:
        if len(block.content) > _BLOCK:
            yield block
            block = _Block()
        block.add(key, value)
    yield block


class _Block:
    """Entries one behind the other, of whose keys the beginnings that they share are left out.

    Attributes:
        key: the last one.
        content: the entries.
    """

    def __init__(self) -> None:
        self.key = b""
        self.content = bytearray()
        self._restarts: list[int] = [0]
        self._count = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Adds an entry behind the others."""
        whole = self._count % _RESTART == 0
        shared = 0 if whole else _shared(key, self.key)
        if whole and self._count:
            self._restarts.append(len(self.content))
        lengths = (shared, len(key) - shared, len(value))
        self.content += b"".join(map(varint_bytes, lengths)) + key[shared:] + value
        self.key = key
        self._count += 1

    def complete(self) -> bytes:
        """The block with its restart points, how it is compressed, and its checksum."""
        numbers = (*self._restarts, len(self._restarts))
        stored = bytes(self.content) + b"".join(number.to_bytes(4, "little") for number in numbers) + bytes([_RAW])
        return stored + masked(crc32c(stored)).to_bytes(4, "little")


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes two keys begin with alike."""
    differing = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def _appended(content: bytearray, block: _Block) -> bytes:
    """Where a block lies, which is put behind the others."""
    stored = block.complete()
    place = varint_bytes(len(content)) + varint_bytes(len(stored) - _TRAILER)
    content += stored
    return place
