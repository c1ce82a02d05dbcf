"""Reading and writing files: whole or not at all; symbolic links are followed, devices and pipes are supported."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# Bytes: protobuf cannot hold more in one message; larger models keep their weights in a file of their own.
PROTOBUF_LIMIT = 2**31 - 2**20

# Seconds that a pipe has to find a writer.
_PATIENCE = 2.0


def is_special(path: Path) -> bool:
    """Whether a path leads to a device, a pipe or a socket, which must not be replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()


def other_kind(path: Path) -> str | None:
    """What a path leads to: a folder, pipe, socket or device; `None` for a regular file and for nothing."""
    kinds = {"directory": path.is_dir, "pipe": path.is_fifo, "socket": path.is_socket}
    special = "device" if is_special(path) else None
    return next((kind for kind, matches in kinds.items() if matches()), special)


def read_whole(path: Path) -> bytes:
    """The bytes of a file, or of a pipe with a writer.

    Raises:
        OSError: it cannot be read, or is a pipe that no process opens for writing in time.
    """
    if not path.is_fifo():
        return path.read_bytes()
    # Opened like this, a pipe without a writer is at its end, and one with a writer says to try again.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as pipe:
        deadline = time.monotonic() + _PATIENCE
        while (first := pipe.read(1)) == b"":
            if time.monotonic() > deadline:
                raise OSError(f"{path}: a file is required, got a pipe without a writer")
            time.sleep(0.01)
        os.set_blocking(pipe.fileno(), True)
        return (first or b"") + pipe.read()


def real_path(path: Path) -> Path:
    """Where a file is that a path leads to; links are followed, so that they stay links when it is replaced.

    Raises:
        OSError: the path leads to a folder, or into none.
    """
    found = Path(os.path.realpath(path))
    if found.is_dir():
        raise IsADirectoryError(f"{path}: a file is required, got a folder")
    if not found.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {found.parent}")
    return found


def check_place(path: Path, *read: Path | None) -> None:
    """Checks that a file can be written to a path, before anybody works on what goes into it.

    Args:
        path: the path.
        read: files of another kind that what goes into it is made of, which it must not replace.

    Raises:
        OSError: it cannot.
    """
    if path.name == "-" and not path.is_absolute():
        raise OSError("a file is required, got '-'; nothing but messages is written to standard output")
    if is_special(path):
        return
    if any(source is not None and source.exists() and path.exists() and path.samefile(source) for source in read):
        raise OSError(f"{path}: another file than the one that is read is required as output")
    if any("\ud800" <= letter <= "\udfff" for letter in path.name):
        # onnxruntime and onnx's checker open no other file.
        raise OSError(f"{path}: a name in UTF-8 is required")
    folder = real_path(path).parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def make_folder(path: Path) -> list[Path]:
    """Makes a folder, and those above it; those that were not there, innermost first, for `remove_empty`.

    Raises:
        OSError: it cannot be made.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return missing


def remove_empty(folders: list[Path]) -> None:
    """Removes folders, innermost first, as far as nothing is in them."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A path to write to that becomes `path` when the block ends well, and leaves nothing behind otherwise.

    It lies in a folder of its own on the same file system, so that the last step is a rename, and has the same name,
    so that names of further files that are written beside it fit. What is no regular file is written into: the bytes
    lie in a temporary folder until they are complete.

    Raises:
        OSError: nothing can be written there, or further files were written beside what is no regular file.
    """
    check_place(path)
    special = is_special(path)
    parent = None if special else real_path(path).parent
    with _naming(path), _folder_beside(path, parent) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        others = [other for other in Path(folder).iterdir() if other != temporary]
        if special and others:
            raise OSError(f"{path}: a regular file is required for what has {others[0].name} beside it, got a device")
        for other in others:
            _move(other, path.with_name(other.name))
        _move(temporary, path)


def write_text(path: Path, text: str) -> None:
    """Writes a text, whole or not at all.

    Raises:
        OSError: nothing can be written there.
    """
    with atomic_path(path) as temporary:
        # A name of a file that is read may hold bytes that are no text.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def _folder_beside(path: Path, parent: Path | None) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder; where none can be made, the error is about the path that cannot be written."""
    try:
        return tempfile.TemporaryDirectory(prefix=f".{path.name[:32]}.", dir=parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Says of a full disk, of which Python names no file, what could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _move(source: Path, path: Path) -> None:
    if is_special(path):
        with source.open("rb") as complete, path.open("wb") as sink:
            shutil.copyfileobj(complete, sink)
        return
    target = real_path(path)
    if target.exists():
        shutil.copymode(target, source)
    if target.parent.samefile(source.parent.parent):
        source.replace(target)
        return
    # A link led to another folder, perhaps on another file system.
    with tempfile.TemporaryDirectory(prefix=f".{target.name[:32]}.", dir=target.parent) as folder:
        copied = Path(folder) / target.name
        shutil.copy(source, copied)
        copied.replace(target)
