"""Checkpoints: tensor bundles, and the older single tables; names at once, values when they are asked for.

A bundle is a table `PREFIX.index` of entries that say where in `PREFIX.data-00000-of-00002` and so on a tensor's bytes
lie. An older checkpoint holds the values in the table, in messages. In both a tensor may lie in slices of its own, as a
partitioned variable does: its entry lists them, and each stands under a key made of name and slice.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import fnmatch
import glob
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, Literal

import numpy as np

from lstm_lower import budget
from lstm_lower.checkpoints import messages, table, values
from lstm_lower.checkpoints.checksums import crc32c, masked, unmasked
from lstm_lower.checkpoints.table import FileRegion, Handle
from lstm_lower.errors import InvalidInputError, InvalidModelError, damage_told
from lstm_lower.records.files import path_within, protect
from lstm_lower.records.wire import DamageError, varint, varint_bytes

Array = values.Array

# Where a slice begins along each axis and how long it is; the length -1 takes all of an axis.
Slice = tuple[tuple[int, int], ...]

Order = Literal["<", ">"]

# The key under which checkpoints of objects keep what their keys belong to.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

_WIDEST = 2**40


@dataclasses.dataclass(frozen=True)
class Stored:
    """What is known of a tensor before its value is read.

    Attributes:
        dtype: its DataType.
        shape: its sizes.
        slices: those that it lies in; none where it lies in one piece.
    """

    dtype: int
    shape: tuple[int, ...]
    slices: tuple[Slice, ...] = ()


class Checkpoint(abc.ABC):
    """A checkpoint.

    Attributes:
        path: its prefix, or the file where it is a single one.
        tensors: name -> what is known of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors: dict[str, Stored] = {}

    @property
    def missing(self) -> list[str]:
        """Names of files that hold its values and are not there."""
        return []

    def read(self, name: str) -> Array:
        """The value of a tensor; strings are bytes in an array of objects.

        Raises:
            InvalidModelError: the checkpoint is damaged, or the tensor is of what has no values, such as a resource.
        """
        stored = self.tensors[name]
        what = f"{self.path}: tensor '{name}'"
        dtype = values.numpy_dtype(stored.dtype, what)
        with _damage(self.path):
            if not stored.slices:
                return self._piece(name, None, dtype, stored.shape)
            boxes = [_box(piece, stored.shape) for piece in stored.slices]
            if sum(math.prod(box_shape(box)) for box in boxes) != math.prod(stored.shape):
                raise DamageError(f"the slices of '{name}' do not cover it")
            pieces = [
                self._piece(name, piece, dtype, box_shape(box)) for piece, box in zip(stored.slices, boxes, strict=True)
            ]
            whole, covered = np.empty(stored.shape, dtype), np.zeros(stored.shape, bool)
            for box, piece in zip(boxes, pieces, strict=True):
                whole[box], covered[box] = piece, True
            if not covered.all():
                raise DamageError(f"the slices of '{name}' do not cover it")
            return whole

    @property
    def order(self) -> Order:
        """Which byte of a number comes first in a bundle: the last (`<`) or the first (`>`)."""
        return "<"

    def entries(self, without: Collection[str] = ()) -> Iterator[tuple[bytes, Any, bytes]]:
        """Keys, entries and bytes, as a bundle has them; where the bytes lie, the entries do not say.

        Args:
            without: names of tensors that are left out.

        Raises:
            InvalidModelError: the checkpoint is damaged.
        """
        for name, stored in self.tensors.items():
            if name not in without:
                yield entry_of(name, self.read(name), stored.dtype)

    @abc.abstractmethod
    def _piece(self, name: str, piece: Slice | None, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
        """A tensor's value, or that of one slice."""


@budget.account()
def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a checkpoint by its prefix, one of its files, or its folder, of which it is the latest.

    Raises:
        InvalidInputError: there is none.
        InvalidModelError: it is damaged.
    """
    found = find_checkpoint(path)
    if found is None:
        raise InvalidInputError(
            f"checkpoint requires a prefix with {path.name}.index beside it, or a folder with a checkpoint, got {path}"
        )
    index = _beside(found, ".index")
    if index.is_file():
        protect(index, *found.parent.glob(f"{glob.escape(found.name)}.data-?????-of-?????"))
        return _Bundle(found)
    protect(*_tables(found))
    return _Tables(found, _tables(found))


def find_checkpoint(path: Path) -> Path | None:
    """The prefix of the checkpoint that a path means, or its file where it is a single one; `None` without any.

    Raises:
        InvalidInputError: the path is a folder with several checkpoints and no record of the latest.
        InvalidModelError: the record of the latest is damaged.
    """
    if path.is_dir():
        return _in_folder(path)
    name = path.name.partition(".data-")[0].removesuffix(".index").removesuffix(".meta")
    for candidate in (path.with_name(name or path.name), path):
        if _beside(candidate, ".index").is_file() or _tables(candidate):
            return candidate
    return None


def _tables(path: Path) -> list[Path]:
    """The files of an older checkpoint: the path itself, or those that its pattern `-?????-of-00002` fits."""
    pattern = path.name if "?" in path.name else f"{glob.escape(path.name)}-?????-of-?????"
    # Not pathlib's glob, to which `**` is no name.
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    files = [path] if path.is_file() else sorted(x for x in beside if fnmatch.fnmatchcase(x.name, pattern))
    return files if files and all(map(table.is_table, files)) else []


def _beside(prefix: Path, ending: str) -> Path:
    return prefix.with_name(prefix.name + ending)


def _in_folder(folder: Path) -> Path | None:
    record = folder / "checkpoint"
    if record.is_file():
        protect(record)
        state = messages.parse_text(messages.CheckpointState, record.read_bytes(), str(record))
        written = PureWindowsPath(state.model_checkpoint_path)
        # A folder that was moved still has the old path in its record.
        names = [written.name] if written.anchor else [state.model_checkpoint_path, written.name]
        what = f"{record}: model_checkpoint_path"
        with damage_told(lambda error: InvalidModelError(f"{what} requires the prefix of a checkpoint: {error}")):
            candidates = [path_within(folder, name, what) for name in dict.fromkeys(names) if name]
            return next((found for path in candidates if not path.is_dir() and (found := find_checkpoint(path))), None)
    inner = folder / "variables" / "variables"
    if _beside(inner, ".index").is_file():
        return inner
    prefixes = sorted(path.with_suffix("") for path in folder.glob("*.index"))
    if len(prefixes) > 1:
        raise InvalidInputError(
            f"checkpoint requires a folder with one checkpoint or a record of the latest, got {len(prefixes)} in "
            f"{folder}, among them {prefixes[-1].name}; name one of them"
        )
    return prefixes[0] if prefixes else None


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except DamageError as damage:
        raise InvalidModelError(f"{path}: a checkpoint is required, got a damaged one: {damage}") from damage


class _Bundle(Checkpoint):
    def __init__(self, prefix: Path) -> None:
        super().__init__(prefix)
        self._entries: dict[bytes, Any] = {}
        with _damage(prefix):
            region = FileRegion(_beside(prefix, ".index"))
            for _, handle in table.blocks(region):
                for key, value in table.entries(region, handle):
                    kind = messages.BundleEntry if key else messages.BundleHeader
                    self._entries[key] = messages.parse(kind, value, f"{prefix}.index: entry {key!r:.80}")
            header = self._entries.pop(b"", None)
            if header is None:
                raise DamageError("its index has no header")
            self._shards: int = header.num_shards
            self._order: Order = ">" if header.endianness else "<"
            for key, entry in self._entries.items():
                # Keys of slices begin with a zero.
                if not key.startswith(b"\0"):
                    name = key.decode("utf-8", "backslashreplace")
                    self.tensors[name] = Stored(entry.dtype, _sizes(entry.shape), _slices(entry.slices))

    @property
    def order(self) -> Order:
        return self._order

    def entries(self, without: Collection[str] = ()) -> Iterator[tuple[bytes, Any, bytes]]:
        left_out = {name.encode() for name in without}
        left_out |= {slice_key(name, piece) for name in without for piece in self.tensors[name].slices}
        for key, entry in self._entries.items():
            if key not in left_out:
                with _damage(self.path):
                    yield key, entry, b"" if entry.slices else self._content(entry)

    @property
    def missing(self) -> list[str]:
        used = sorted({entry.shard_id for entry in self._entries.values() if not entry.slices})
        return [path.name for path in map(self._shard, used) if not path.is_file()]

    def _shard(self, number: int) -> Path:
        return _beside(self.path, f".data-{number:05d}-of-{self._shards:05d}")

    def _piece(self, name: str, piece: Slice | None, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
        key = name.encode() if piece is None else slice_key(name, piece)
        entry = self._entries.get(key)
        if entry is None or (piece is not None and (_sizes(entry.shape) != tuple(shape))):
            raise DamageError(f"a slice of '{name}' is missing")
        content = self._content(entry)
        if dtype.hasobject:
            return _strings(content, math.prod(shape), entry.crc32c).reshape(shape)
        if entry.size != math.prod(shape) * dtype.itemsize:
            raise DamageError(f"'{name}' has {entry.size} bytes for {dtype.name}{list(shape)}")
        if unmasked(entry.crc32c) != crc32c(content):
            raise DamageError(f"the checksum of '{name}' does not match")
        return np.frombuffer(content, dtype.newbyteorder(self._order)).astype(dtype, copy=False).reshape(shape)

    def _content(self, entry: Any) -> bytes:
        path = self._shard(entry.shard_id)
        if not path.is_file():
            raise DamageError(f"{path.name} is missing")
        return FileRegion(path).read(entry.offset, entry.size)


def object_graph(checkpoint: Checkpoint) -> Any:
    """What a checkpoint says of the objects whose values it holds.

    Raises:
        InvalidModelError: it is damaged.
    """
    content = checkpoint.read(OBJECT_GRAPH)
    if content.shape != () or not isinstance(content.item(), bytes):
        raise InvalidModelError(f"{checkpoint.path}: {OBJECT_GRAPH} requires one text, got shape {list(content.shape)}")
    return messages.parse(messages.TrackableObjectGraph, content.item(), f"{checkpoint.path}: {OBJECT_GRAPH}")


def full_names(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """What the objects call each variable whose value a checkpoint holds, and its key; none without objects.

    Raises:
        InvalidModelError: what it says of objects is damaged.
    """
    if OBJECT_GRAPH not in checkpoint.tensors:
        return []
    nodes = object_graph(checkpoint).nodes
    return [(each.full_name, each.checkpoint_key) for node in nodes for each in node.attributes]


def _strings(content: bytes, count: int, checksum: int) -> Array:
    """Strings as a bundle holds them: lengths, their checksum, and all bytes, which one checksum goes over."""
    lengths, position = [], 0
    if count > len(content):
        raise DamageError(f"{count} strings do not fit into {len(content)} bytes")
    for _ in range(count):
        length, position = varint(content, position)
        lengths.append(length)
    summed = _summed(lengths)
    stored = content[position : position + 4]
    position += 4
    if stored != masked(crc32c(summed)).to_bytes(4, "little") or position + sum(lengths) != len(content):
        raise DamageError("the checksum of lengths of strings does not match")
    if unmasked(checksum) != crc32c(summed + stored + content[position:]):
        raise DamageError("the checksum of strings does not match")
    texts = np.empty(count, object)
    for index, length in enumerate(lengths):
        texts[index] = content[position : position + length]
        position += length
    return texts


class _Tables(Checkpoint):
    """A checkpoint of the older kind, in one file or several."""

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        super().__init__(path)
        self._places: dict[tuple[str, Slice], _Table] = {}
        with _damage(path):
            for opened in map(_Table, files):
                for tensor in opened.message(b"").meta.tensor:
                    # Every tensor lies in slices here, of which one may be all of it.
                    pieces = _slices(tensor.slice)
                    before = self.tensors.get(tensor.name)
                    known = pieces if before is None else (*before.slices, *pieces)
                    stored = Stored(values.base_dtype(tensor.type), _sizes(tensor.shape), known)
                    self.tensors[tensor.name] = stored
                    self._places |= dict.fromkeys(((tensor.name, piece) for piece in pieces), opened)

    def _piece(self, name: str, piece: Slice | None, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
        key = (name, piece or ())
        data = self._places[key].message(slice_key(*key)).data.data
        # The message leaves out dtype and shape.
        return values.array_of(data, dtype, self.tensors[name].dtype, shape, f"{self.path}: tensor '{name}'")


class _Table:
    """One file of an older checkpoint."""

    def __init__(self, path: Path) -> None:
        self._region = FileRegion(path)
        self._blocks: list[tuple[bytes, Handle]] = list(table.blocks(self._region))

    def message(self, key: bytes) -> Any:
        """The message under a key."""
        for last, handle in self._blocks:
            if last >= key:
                for found, value in table.entries(self._region, handle):
                    if found == key:
                        what = f"{self._region.path}: entry {key!r:.80}"
                        return messages.parse(messages.SavedTensorSlices, value, what)
                break
        raise DamageError(f"entry {key!r:.80} is missing")


def _sizes(proto: Any) -> tuple[int, ...]:
    if proto.unknown_rank or any(not 0 <= dim.size < _WIDEST for dim in proto.dim) or len(proto.dim) > 32:
        raise DamageError("a tensor has an impossible shape")
    return tuple(dim.size for dim in proto.dim)


def _slices(protos: Any) -> tuple[Slice, ...]:
    return tuple(
        tuple((extent.start, extent.length if extent.HasField("length") else -1) for extent in proto.extent)
        for proto in protos
    )


def _box(piece: Slice, shape: Sequence[int]) -> tuple[slice, ...]:
    """A slice as numpy writes it."""
    if len(piece) != len(shape):
        raise DamageError("a slice has another rank than its tensor")
    ends = [
        (start, start + length if length >= 0 else size) for (start, length), size in zip(piece, shape, strict=True)
    ]
    if any(not 0 <= start <= end <= size for (start, end), size in zip(ends, shape, strict=True)):
        raise DamageError("a slice reaches beyond its tensor")
    return tuple(slice(start, end) for start, end in ends)


def box_shape(box: Sequence[slice]) -> tuple[int, ...]:
    """Sizes of what slices cut out."""
    return tuple(part.stop - part.start for part in box)


def slice_key(name: str, piece: Slice) -> bytes:
    """The key of a slice: numbers and a text, written so that the order of bytes is theirs."""
    text = name.encode().replace(b"\0", b"\0\xff")
    numbers = b"".join(_ordered(number) for extent in piece for number in extent)
    rank = len(piece).to_bytes((len(piece).bit_length() + 7) // 8, "big")
    return b"\0" + text + b"\0\1" + bytes([len(rank)]) + rank + numbers


def _ordered(number: int) -> bytes:
    """A signed number: its length in bytes is that of the run of ones (of zeros, when negative) that it begins with."""
    magnitude = ~number if number < 0 else number
    length = magnitude.bit_length() // 7 + 1
    # The topmost bits say the length; of a short number they are a single byte's, of a long one two.
    header = ((1 << length) - 1) << (16 - length)
    wide = number & ((1 << 8 * max(length, 2)) - 1)
    wide ^= header << 8 * (max(length, 2) - 2) if length > 1 else header >> 8
    return wide.to_bytes(max(length, 2), "big")[-length:]


def entry_of(name: str, value: Array, dtype: int, order: Order = "<") -> tuple[bytes, Any, bytes]:
    """A tensor as a bundle has it: its key, its entry, which does not say yet where its bytes lie, and these.

    Args:
        name: the tensor's name.
        value: its value; bytes in an array of objects for strings.
        dtype: its DataType.
        order: which byte of a number comes first.
    """
    content, checksum = _content_of_strings(value) if value.dtype.hasobject else _content_of_numbers(value, order)
    entry = messages.BundleEntry(dtype=dtype, size=len(content), crc32c=masked(checksum))
    entry.shape.SetInParent()
    for size in value.shape:
        entry.shape.dim.add(size=size)
    return name.encode(), entry, content


def _content_of_numbers(value: Array, order: Order) -> tuple[bytes, int]:
    content = value.astype(value.dtype.newbyteorder(order), copy=False).tobytes()
    return content, crc32c(content)


def _content_of_strings(value: Array) -> tuple[bytes, int]:
    """The bytes, and the checksum, which goes over other bytes than these."""
    texts = [bytes(text) for text in value.ravel()]
    summed = _summed(map(len, texts))
    told = masked(crc32c(summed)).to_bytes(4, "little")
    behind = told + b"".join(texts)
    return b"".join(varint_bytes(len(text)) for text in texts) + behind, crc32c(summed + behind)


def _summed(lengths: Iterable[int]) -> bytes:
    """Lengths of strings as their checksum goes over them."""
    return b"".join(length.to_bytes(4 if length < 2**32 else 8, "little") for length in lengths)


def write_bundle(prefix: Path, pieces: Iterable[tuple[bytes, Any, bytes]], order: Order = "<") -> None:
    """Writes a bundle, its index and one file of bytes, into a folder that is there.

    Args:
        prefix: the path of both without their endings.
        pieces: what `entry_of` or `Checkpoint.entries` makes, in any order.
        order: which byte of a number comes first in them.

    Raises:
        OSError: nothing can be written there.
    """
    header = messages.BundleHeader(num_shards=1, endianness=int(order == ">"))
    header.version.producer = 1
    written, offset = {b"": header.SerializeToString()}, 0
    with _beside(prefix, ".data-00000-of-00001").open("wb") as data:
        for key, entry, content in pieces:
            placed = messages.BundleEntry()
            placed.CopyFrom(entry)
            placed.shard_id, placed.offset = 0, 0 if entry.slices else offset
            offset += data.write(content)
            written[key] = placed.SerializeToString()
    _beside(prefix, ".index").write_bytes(table.written(sorted(written.items())))


def write_record(folder: Path, name: str, before: Path) -> None:
    """Writes the record of the latest checkpoint of a folder, which goes on from the one that is there.

    Args:
        folder: where it is written.
        name: prefix of the latest.
        before: the folder that may have a record.

    Raises:
        InvalidModelError: the record that is there is damaged.
    """
    state = messages.CheckpointState()
    record = before / "checkpoint"
    if record.is_file():
        state = messages.parse_text(messages.CheckpointState, record.read_bytes(), str(record))
    others = [path for path in state.all_model_checkpoint_paths if path != name]
    latest = messages.CheckpointState(model_checkpoint_path=name, all_model_checkpoint_paths=[*others, name])
    (folder / "checkpoint").write_text(messages.text(latest), encoding="utf-8")
