"""Reading and writing files: whole or not at all; symbolic links are followed, devices and pipes are supported.

What is written comes into being in a temporary folder beside its place, is synced to the disk, and takes its place by
one rename. A process that is killed leaves that folder behind, locked by nobody; whoever writes there next removes it.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lstm_lower.errors import InvalidModelError

if sys.platform != "win32":
    import fcntl

# Bytes: protobuf cannot hold more in one message; larger models keep their weights in a file of their own.
PROTOBUF_LIMIT = 2**31 - 2**20

# Seconds that a pipe has to find a writer.
_PATIENCE = 2.0

# Ending of temporary folders, by which those of killed processes are known.
_TEMPORARY = ".lstm-lower"

# Names that Windows keeps for devices, there with any ending.
_DEVICE = re.compile(r"con|prn|aux|nul|com\d|lpt\d|conin\$|conout\$", re.IGNORECASE)

# Files that the inputs of the command that runs now consist of; `None` where none runs.
_protected: dict[tuple[int, int], Path] | None = None


def is_special(path: Path) -> bool:
    """Whether a path leads to a device, a pipe or a socket, which must not be replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()


def other_kind(path: Path) -> str | None:
    """The kind of what a path leads to: a folder, pipe, socket or device; `None` for a regular file and for nothing."""
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


def leads_elsewhere(name: str) -> bool:
    """Whether a name that stands in a file leads out of a folder, whatever is in it and on whatever system.

    Such are absolute names, those with `..`, a drive letter, a backslash or a zero byte, and those of devices.
    """
    parts = name.split("/")
    # Windows knows a device by what stands before the first point.
    named = [part.partition(".")[0].rstrip() if os.name == "nt" else part for part in parts]
    return (
        name.startswith("/")
        or ".." in parts
        or any(letter in name for letter in "\\\0")
        or re.match("[A-Za-z]:", name) is not None
        or any(map(_DEVICE.fullmatch, named))
    )


def path_within(folder: Path, name: str, what: str, inside: str = "its folder") -> Path:
    """The path of a file in a folder, or below it, under a name that stands in a file and may be anybody's.

    Args:
        folder: the folder.
        name: the file's name, with `/` between folders.
        what: what has this name, for the error.
        inside: what the error calls the folder.

    Raises:
        InvalidModelError: the name leads out of the folder, by itself or by a link, or is the folder's own.
    """
    within = Path(os.path.realpath(folder))
    try:
        real = within if leads_elsewhere(name) else Path(os.path.realpath(folder / name))
    except ValueError:  # half of a character
        real = within
    if real == within or not real.is_relative_to(within):
        raise InvalidModelError(f"{what} requires a path inside {inside}, got {name!r}")
    return folder / name


def own_path(folder: Path, name: str) -> Path:
    """The path of a file that we keep in a folder under a name of ours: there is none yet, or it is a plain file.

    Raises:
        OSError: it is something else, such as a link, by which a folder that came from elsewhere would have another
            file written.
    """
    path = folder / name
    kind = "link" if path.is_symlink() else other_kind(path)
    if kind is not None:
        raise OSError(f"{path}: a plain file is required, got a {kind}; remove it")
    return path


@contextlib.contextmanager
def inputs_protected() -> Iterator[None]:
    """Refuses, in the block, to write over files that were named to `protect`."""
    global _protected  # noqa: PLW0603 (one command runs in a process)
    before, _protected = _protected, {}
    try:
        yield
    finally:
        _protected = before


def protect(*paths: Path) -> None:
    """Notes files that an input consists of, which no output of the same command may replace."""
    if _protected is not None:
        for path in paths:
            with contextlib.suppress(OSError):
                if path.is_file():
                    about = path.stat()
                    _protected[about.st_dev, about.st_ino] = path


def is_protected(path: Path) -> bool:
    """Whether a path leads to a file of an input, under this or another name."""
    if not _protected:
        return False
    try:
        about = path.stat()
    except OSError:
        return False
    return (about.st_dev, about.st_ino) in _protected


def real_path(path: Path) -> Path:
    """Where a file is that a path leads to; links are followed, so that they stay links when it is replaced.

    Raises:
        OSError: the path leads to a folder, or into none.
    """
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise IsADirectoryError(f"{path}: a file is required, got a folder")
    if not real.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {real.parent}")
    return real


def check_place(*paths: Path | None) -> None:
    """Checks that files can be written to paths, before anybody works on what goes into them.

    Raises:
        OSError: one cannot, or is a file that an input of the command consists of.
    """
    for path in paths:
        if path is not None:
            _check_place(path)


def _check_place(path: Path) -> None:
    if path.name == "-" and not path.is_absolute():
        raise OSError("a file is required, got '-'; nothing but messages is written to standard output")
    if is_special(path):
        return
    if is_protected(path):
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

    It lies in a folder of its own on the same file system, so that the last step is one rename, and has the same name.
    Further files that are written beside it take their places before: they have names that no file before them has,
    those of `by_content`, or may change before it does. What is no regular file is written into: the bytes lie in a
    temporary folder until they are complete.

    Raises:
        OSError: nothing can be written there, or further files were written beside what is no regular file.
    """
    check_place(path)
    special = is_special(path)
    parent = None if special else real_path(path).parent
    with _naming(path), temporary_folder(path.name, parent) as folder:
        temporary = folder / path.name
        yield temporary
        others = [other for other in folder.iterdir() if other != temporary]
        if special and others:
            raise OSError(f"{path}: a regular file is required for what has {others[0].name} beside it, got a device")
        mode = _mode(path, folder)
        placed = []
        try:
            for other in others:
                place = path.with_name(other.name)
                if is_protected(place) and filecmp.cmp(other, place, shallow=False):
                    continue  # the same weights, of which an input consists, too
                placed += [] if place.exists() else [place]
                linked = other.stat().st_nlink > 1  # to a file that was synced when it was written
                if not linked:
                    _complete(other, mode)
                _move(other, place)
                if not linked:
                    _sync(path.parent)
            _complete(temporary, mode)
            _move(temporary, path)
            if parent is not None:
                _sync(parent)
        except BaseException:
            # A signal may come behind the rename.
            if temporary.exists():
                for place in placed:
                    place.unlink(missing_ok=True)
            raise
    if not special:
        _remove_data(path, {other.name for other in others})


@contextlib.contextmanager
def atomic_files(folder: Path, first: str | None = None, gone: Sequence[str] = ()) -> Iterator[Path]:
    """A folder to write to whose files take their places in another one together when the block ends well.

    Before the first new file comes, all old ones leave, so that there is never one of each: whoever reads the folder of
    a process that was killed misses a file. If a step fails, all are as they were.

    Args:
        folder: where the files go; it is made if it is not there. Other files in it stay.
        first: the file that leaves first and comes last, which says that the others are complete.
        gone: names of further files that leave.

    Raises:
        OSError: nothing can be written there, or one of the files belongs to an input of the command.
    """
    made = make_folder(folder)
    try:
        with temporary_folder(folder.name, folder) as work:
            new, old = work / "new", work / "old"
            new.mkdir()
            old.mkdir()
            yield new
            names = sorted((path.name for path in new.iterdir()), key=lambda name: name != first)
            for name in names:
                _complete(new / name, _mode(folder / name, work))
            leaving = [name for name in dict.fromkeys([*names, *gone]) if os.path.lexists(folder / name)]
            for name in (*names, *leaving):
                check_place(folder / name)
            try:
                for name in leaving:
                    (folder / name).rename(old / name)
                _sync(folder)
                for name in reversed(names):
                    (new / name).rename(folder / name)
                _sync(folder)
            except BaseException:
                for name in reversed(names):
                    if (folder / name).exists() and not (new / name).exists():
                        (folder / name).rename(new / name)
                for path in old.iterdir():
                    path.rename(folder / path.name)
                raise
    except BaseException:
        remove_empty(made)
        raise


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to write to that becomes `path` when the block ends well; a folder that is there leaves then.

    Raises:
        OSError: nothing can be written there, or the folder that is there has a file of an input of the command.
    """
    for file in path.rglob("*"):
        check_place(file if file.is_file() else None)
    with temporary_folder(path.name, path.parent) as work:
        new, old = work / "new", work / "old"
        new.mkdir()
        yield new
        for written in (*new.rglob("*"), new):
            _sync(written)
        if path.is_dir():
            path.rename(old)
        try:
            new.rename(path)
        except BaseException:
            if old.is_dir():
                old.rename(path)
            raise
        _sync(path.parent)


def by_content(data: Path, name: str) -> str:
    """The name of a file that lies beside another one, which tells its content: another content is another file.

    So a model's data come into place before the model, and a model that is there keeps its own until it is replaced.

    Args:
        data: the file's bytes.
        name: of the file beside which it will lie.
    """
    with data.open("rb") as file:
        return f"{name}.{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}.data"


def is_data_of(path: Path, name: str) -> bool:
    """Whether a file is called as `by_content` calls one that lies beside a file of this name."""
    return re.fullmatch(rf"{re.escape(name)}\.[0-9a-f]{{16}}\.data", path.name) is not None


def write_text(path: Path, text: str) -> None:
    """Writes a text, whole or not at all.

    Raises:
        OSError: nothing can be written there.
    """
    with atomic_path(path) as temporary:
        # A name of a file that is read may hold bytes that are no text.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextlib.contextmanager
def temporary_folder(name: str, parent: Path | None) -> Iterator[Path]:
    """A temporary folder for a file of this name; what killed processes left of theirs in the same place is removed.

    Args:
        name: of the file.
        parent: where the folder lies; `None` for where temporary files of the machine lie.

    Raises:
        OSError: none can be made there; the error is about the file.
    """
    if parent is not None:
        _remove_abandoned(parent)
    try:
        while True:
            folder = Path(tempfile.mkdtemp(_TEMPORARY, f".{name[:32]}.", parent))
            # Until it was locked, another process might take it for an abandoned one.
            lock = _locked(folder)
            if folder.exists():
                break
            _unlock(lock)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(Path(parent or "") / name)) from error
    try:
        yield folder
    finally:
        try:
            folder.rmdir()  # most are empty
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


def _remove_abandoned(parent: Path) -> bool:
    """Removes temporary folders whose processes are gone; whether none is left."""
    abandoned = [parent / name for name in _names_in(parent) if name.startswith(".") and name.endswith(_TEMPORARY)]
    for folder in abandoned:
        if (lock := _locked(folder, wait=False)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            _unlock(lock)
    return not any(map(os.path.lexists, abandoned))


def _names_in(folder: Path) -> list[str]:
    """The names in a folder; none where it can be written and not be read."""
    with contextlib.suppress(OSError):
        return [entry.name for entry in os.scandir(folder)]
    return []


def _locked(folder: Path, *, wait: bool = True) -> int | None:
    """A descriptor that holds the lock of a folder; `None` where another process has it or there are no locks."""
    if sys.platform == "win32":  # where temporary folders of killed processes stay
        return None
    descriptor = None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        _unlock(descriptor)
        return None
    return descriptor


def _unlock(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _remove_data(path: Path, kept: set[str]) -> None:
    """Removes the data of a file that was replaced, and what killed processes left of theirs, where none is at work."""
    names = [name for name in _names_in(path.parent) if name.endswith(".data") and name not in kept]
    stale = [other for name in names if is_data_of(other := path.with_name(name), path.name)]
    if stale and _remove_abandoned(path.parent):
        for other in stale:
            if not is_protected(other):
                other.unlink(missing_ok=True)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Says of a full disk, of which Python names no file, what could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _mode(path: Path, folder: Path) -> int:
    """The mode of the file that is there, else that of a new one."""
    if not path.is_file():
        path = folder / ".mode"
        path.touch()
        mode = path.stat().st_mode
        path.unlink()
        return mode
    return path.stat().st_mode


def _complete(path: Path, mode: int) -> None:
    """Sees to it that a complete file is on the disk, and who may read it."""
    _sync(path)
    if path.stat().st_mode != mode:
        path.chmod(stat.S_IMODE(mode))


def _move(source: Path, path: Path) -> None:
    if is_special(path):
        with source.open("rb") as complete, path.open("wb") as sink:
            shutil.copyfileobj(complete, sink)
        return
    check_place(path)
    target = real_path(path)
    if target.parent.samefile(source.parent.parent):
        source.replace(target)
    else:
        # A link led to another folder, perhaps on another file system.
        with temporary_folder(target.name, target.parent) as folder:
            copied = folder / target.name
            shutil.copy(source, copied)
            _sync(copied)
            copied.replace(target)


def _sync(path: Path) -> None:
    """Waits until a file, or a folder's list of names, is on the disk."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
