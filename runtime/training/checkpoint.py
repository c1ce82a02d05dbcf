"""Checkpoints: safetensors files that are whole or not there.

A checkpoint is written beside its final name, synced to the disk, and renamed. Whenever the process or the machine
stops, the file of that name is complete: the new one or the one before. The one before also stays as
`<name>.previous`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError
from lstm_lower.extras import needed_by

FORMAT = "lstm_lower.checkpoint.1"

Array = np.ndarray[Any, Any]


def previous_path(path: Path) -> Path:
    """Where the checkpoint before the last one is kept."""
    return path.with_name(f"{path.name}.previous")


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array], notes: Mapping[str, Any]) -> None:
    """Writes a checkpoint.

    Args:
        path: the file; its folder exists.
        arrays: name -> array.
        notes: whatever else JSON can hold.

    Raises:
        MissingPackageError: safetensors is not installed.
    """
    safetensors = _safetensors()
    path = Path(path)
    # One entry only: safetensors writes several in an order of chance, and equal checkpoints shall be equal files.
    metadata = {FORMAT: json.dumps(dict(notes))}
    partial = path.with_name(f".{path.name}.partial")
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    safetensors.numpy.save_file(contiguous, partial, metadata)
    _sync(partial)
    if path.exists():
        link = path.with_name(f".{path.name}.link")
        link.unlink(missing_ok=True)
        _link(path, link)
        link.replace(previous_path(path))
    partial.replace(path)
    _sync(path.parent)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Reads a checkpoint.

    Returns:
        The arrays and the notes.

    Raises:
        InvalidInputError: it is no checkpoint, or damaged; the message names the one before it, if there is one.
        FileNotFoundError: there is no such file.
    """
    safetensors = _safetensors()
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such checkpoint")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (a file, not a dict)
    except safetensors.SafetensorError as error:
        before = previous_path(path)
        hint = f"; the one before it is {before}" if before.is_file() else ""
        raise InvalidInputError(
            f"{path}: a complete checkpoint is required, got a damaged one ({error}){hint}"
        ) from error
    if FORMAT not in metadata:
        raise InvalidInputError(f"{path}: a checkpoint of a trainer is required, got one with {sorted(metadata)}")
    return arrays, json.loads(metadata[FORMAT])


def _link(source: Path, target: Path) -> None:
    """A second name for a file; a copy where the file system has no links."""
    try:
        target.hardlink_to(source)
    except OSError:
        target.write_bytes(source.read_bytes())
        _sync(target)


def _sync(path: Path) -> None:
    """Waits until a file, or a folder's list of names, is on the disk."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _safetensors() -> Any:
    with needed_by("a checkpoint"):
        import safetensors.numpy
    return safetensors
