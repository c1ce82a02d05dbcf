"""Checkpoints: safetensors files that are whole or not there.

Whenever the process or the machine stops, the file of that name is complete: the new one or the one before. The one
before also stays as `<name>.previous`. Among its notes is a hash of the file, by which a changed bit is told; those of
former versions have none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import lstm_lower
from lstm_lower.errors import InvalidInputError, damage_told, some
from lstm_lower.extras import needed_by
from lstm_lower.records import files
from lstm_lower.runtime.processor import processor, processors

# What a run's numbers depend on to the last bit, beside model, data, state and options.


_DENORMALS_AS_ZERO = "session.set_denormal_as_zero"


def arithmetic(session: ort.InferenceSession) -> dict[str, str]:
    """The ground of a session's arithmetic: versions, processor, threads, providers, what denormal numbers become."""
    options = session.get_session_options()
    zero = _entry(options, _DENORMALS_AS_ZERO) == "1" or not _keeps_denormals()
    return {
        "lstm-lower": lstm_lower.__version__,
        "onnxruntime": ort.__version__,
        "processor": processor(),
        "threads": str(options.intra_op_num_threads or processors()),
        "providers": ", ".join(session.get_providers()),
        "denormal numbers": "zero" if zero else "kept",
    }


def differences(then: object, now: Mapping[str, str]) -> str:
    """Differences in words; nothing where it is not known what there was.

    Args:
        then: what a checkpoint recorded, if it did.
        now: what there is.
    """
    recorded: Mapping[Any, Any] = then if isinstance(then, Mapping) else {}
    return ", ".join(
        f"{what} ({recorded[what]} then, {value} now)"
        for what, value in now.items()
        if recorded.get(what, value) != value
    )


def _keeps_denormals() -> bool:
    """Whether the calling thread computes with denormal numbers: another library may have changed it."""
    return bool((np.array([1e-40], np.float32) * np.float32(1) > 0).all())


def _entry(options: ort.SessionOptions, name: str) -> str | None:
    try:
        return str(options.get_session_config_entry(name))
    except RuntimeError:
        return None


FORMAT = "lstm_lower.checkpoint.1"

_HASH = "sha256"
# What stands in a hash's place when it is computed, and what stands before it: in JSON within JSON.
_UNSEALED = b"0" * 64
_BEFORE_HASH = rb"\"sha256\": \""
# How notes with a hash end: whatever its name has become, a changed bit does not make them notes without one.
_SEALED = re.compile(r'"(.{6})": "(.{64})"\}\Z', re.DOTALL)
# How many bytes at the beginning of a safetensors file tell how long its header is.
_LENGTH = 8

Array = np.ndarray[Any, Any]


def previous_path(path: Path) -> Path:
    """Where the checkpoint before the last one is kept."""
    return path.with_name(f"{path.name}.previous")


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array], notes: Mapping[str, Any]) -> None:
    """Writes a checkpoint, also through a link, or into a device or pipe, which keeps none before it.

    Args:
        path: the file; its folder exists.
        arrays: name -> array.
        notes: whatever else JSON can hold.

    Raises:
        InvalidInputError: JSON cannot hold the notes.
        MissingPackageError: safetensors is not installed.
        OSError: nothing can be written there, or the disk is full; what was there is as it was.
    """
    path = Path(path)
    metadata = _metadata(FORMAT, notes)
    path = path if files.is_special(path) else files.real_path(path)
    with files.atomic_path(path) as complete:
        _save(arrays, complete, metadata)
        _seal(complete)
        if path.is_file():
            _link(path, previous_path(complete))


def write_sealed(
    path: str | os.PathLike[str], arrays: Mapping[str, Array], kind: str, notes: Mapping[str, Any]
) -> None:
    """Writes arrays with notes of another kind, and a hash, whole or not at all.

    Raises:
        MissingPackageError: safetensors is not installed.
        OSError: nothing can be written there, or the disk is full; what was there is as it was.
    """
    with files.atomic_path(Path(path)) as complete:
        _save(arrays, complete, _metadata(kind, notes))
        _seal(complete)


def _metadata(kind: str, notes: Mapping[str, Any]) -> dict[str, str]:
    """One entry: safetensors writes several in an order of chance, and equal checkpoints shall be equal files."""
    try:
        return {kind: json.dumps({**notes, _HASH: _UNSEALED.decode()})}
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"notes of a checkpoint require what JSON can hold, got others: {error}") from error


def _save(arrays: Mapping[str, Array], path: Path, metadata: dict[str, str]) -> None:
    safetensors = _safetensors()
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    try:
        safetensors.numpy.save_file(contiguous, path, metadata)
    except safetensors.SafetensorError as error:
        raise OSError(f"{path}: {error}") from error


def _seal(path: Path) -> None:
    """Writes the hash of a file into it, in place of zeros."""
    with path.open("r+b") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(_place(path, _UNSEALED))
        file.write(digest.encode())


def _place(path: Path, digest: bytes) -> int:
    """Where a hash stands in a file: last in the notes, which hold nothing else of ours behind such words."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        return _LENGTH + file.read(length).rindex(_BEFORE_HASH + digest) + len(_BEFORE_HASH)


def _check_hash(path: Path, name: str, digest: str) -> None:
    """Compares a file with the hash that stands in it.

    Raises:
        InvalidInputError: it is another one.
    """
    with damage_told(lambda error: _damaged(path, error)):
        place = _place(path, digest.encode())
    content = hashlib.sha256()
    with path.open("rb") as file:
        content.update(file.read(place))
        content.update(_UNSEALED)
        file.seek(len(_UNSEALED), os.SEEK_CUR)
        while part := file.read(1 << 20):
            content.update(part)
    if name != _HASH or content.hexdigest() != digest:
        raise _damaged(path, "its hash is another one")


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Reads a checkpoint.

    Returns:
        The arrays and the notes.

    Raises:
        InvalidInputError: it is no checkpoint, or damaged; the message names the one before it, if there is one.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    arrays, metadata = read_arrays(path)
    if FORMAT not in metadata:
        raise InvalidInputError(f"{path}: a checkpoint of a trainer is required, got one with {sorted(metadata)}")
    return arrays, sealed_notes(path, metadata, FORMAT)


def sealed_notes(path: str | os.PathLike[str], metadata: Mapping[str, str], kind: str) -> dict[str, Any]:
    """The notes of a kind in a file, which is compared with the hash that stands in them, if there is one.

    Raises:
        InvalidInputError: it is damaged.
    """
    path = Path(path)
    with damage_told(lambda error: _damaged(path, error)):
        notes = json.loads(metadata[kind])
    if not isinstance(notes, dict):
        raise _damaged(path, f"its notes are {type(notes).__name__}, not an object")
    if (sealed := _SEALED.search(metadata[kind])) is not None:
        _check_hash(path, *sealed.groups())
        del notes[_HASH]
    return notes


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Array]) -> None:
    """Writes arrays alone, whole or not at all.

    Raises:
        MissingPackageError: safetensors is not installed.
        OSError: nothing can be written there, or the disk is full; what was there is as it was.
    """
    with files.atomic_path(Path(path)) as complete:
        _save(arrays, complete, {})


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """Reads any safetensors file.

    Returns:
        The arrays and the metadata.

    Raises:
        InvalidInputError: it is not a checkpoint, or is damaged.
        FileNotFoundError: there is no such file.
    """
    safetensors = _safetensors()
    path = Path(path)
    if path.is_dir():
        within = sorted(str(file) for file in path.glob("*.safetensors"))
        raise InvalidInputError(f"{path}: a file is required, got a folder" + (f" of {some(within)}" if within else ""))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    with (
        damage_told(lambda error: _damaged(path, error)),
        safetensors.safe_open(path, framework="numpy") as file,
    ):
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _damaged(path: Path, reason: object) -> InvalidInputError:
    before = previous_path(path)
    hint = f"; the one before it is {before}" if before.is_file() else ""
    return InvalidInputError(f"{path}: a complete checkpoint is required, got a damaged one ({reason}){hint}")


def progress(path: str | os.PathLike[str], notes: Mapping[str, Any]) -> tuple[int, float, dict[str, Any]]:
    """Notes of a trainer in a checkpoint: steps done, learning rate (NaN without one), and its caller's notes.

    Raises:
        InvalidInputError: the notes are not of that form.
    """
    match notes:
        case {"steps": int(steps), "learning_rate": float(rate), "notes": dict(own)} if (
            steps >= 0 and steps is not True
        ):
            return steps, rate, own
    raise _damaged(Path(path), "its notes lack steps, a learning rate or notes of a run")


def trained(path: str | os.PathLike[str], notes: Mapping[str, Any]) -> list[str]:
    """Which arrays of a checkpoint are trained weights, by its notes; none where these do not tell.

    Raises:
        InvalidInputError: the notes are not of that form.
    """
    names = notes.get("weights", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _damaged(Path(path), "its notes name no weights")
    return names


def _link(source: Path, target: Path) -> None:
    """A second name for a file; a copy where the file system has no links."""
    try:
        target.hardlink_to(source)
    except OSError:
        target.write_bytes(source.read_bytes())


def _safetensors() -> Any:
    with needed_by("a checkpoint"):
        import safetensors.numpy
    return safetensors
