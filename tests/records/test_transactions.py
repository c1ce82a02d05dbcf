"""Files that are whole whatever happens: a process that is killed, a disk that is full; names that lead away."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidModelError
from lstm_lower.records import files, model_files
from tests.records.test_files import wide

FED = {"x": np.ones(1000, np.float32)}


def model(weight: float) -> ir.Model:
    """A model whose weights are large enough to lie beside it."""
    made = wide()
    made.graph.initializers["w"].const_value = ir.tensor(np.full(1000, weight, np.float32), name="w")
    return made


def result(path: Path) -> float:
    return float(ll.Session(path).run(FED)["y"][0])


def in_another_process(act: Callable[[], object]) -> int:
    """What a process that does something ends with."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def killed_at(monkeypatch: pytest.MonkeyPatch, number: int, path: Path) -> int:
    """Saves another model in a process that is killed after so many files have taken their places."""
    move, moved = files._move, []

    def moving(source: Path, place: Path) -> None:
        if len(moved) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        move(source, place)
        moved.append(place)

    monkeypatch.setattr(files, "_move", moving)
    try:
        return in_another_process(lambda: model_files.save(model(2), path, external_data=True))
    finally:
        monkeypatch.setattr(files, "_move", move)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_kill_leaves_one_model_or_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = tmp_path / "m.onnx"
    model_files.save(model(1), path, external_data=True)
    assert killed_at(monkeypatch, number, path) == (0 if number == 2 else signal.SIGKILL)
    assert result(path) == (3 if number == 2 else 2)
    # What it left goes when the next one comes.
    assert len(list(tmp_path.iterdir())) == (2, 4, 2)[number] + (number == 0)
    model_files.save(model(5), path, external_data=True)
    assert result(path) == 6
    assert [re.sub("[0-9a-f]{16}", "HASH", entry.name) for entry in sorted(tmp_path.iterdir())] == [
        "m.onnx",
        "m.onnx.HASH.data",
    ]
    model_files.save(model(5), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]


def test_what_another_process_writes_stays(tmp_path: Path) -> None:
    with files.atomic_path(tmp_path / "a") as temporary:
        temporary.write_bytes(b"a")
        in_another_process(lambda: files.write_text(tmp_path / "b", "b"))
        assert temporary.read_bytes() == b"a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_folders_of_others_stay(tmp_path: Path) -> None:
    """Removing what killed processes left follows no links and touches no other names."""
    for name in ("mine.lstm-lower", ".hidden", "kept"):
        (tmp_path / name).mkdir()
    (tmp_path / ".link.lstm-lower").symlink_to(tmp_path / "kept")
    (tmp_path / ".left.12345678.lstm-lower").mkdir()
    (tmp_path / ".left.12345678.lstm-lower" / "link").symlink_to(tmp_path / "kept")
    files.write_text(tmp_path / "b", "b")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".hidden", ".link.lstm-lower", "b", "kept", "mine.lstm-lower"]


@pytest.mark.parametrize("existing", [False, True])
def test_a_rename_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool) -> None:
    path = tmp_path / "m.onnx"
    if existing:
        model_files.save(model(1), path, external_data=True)
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    move = files._move

    def full(source: Path, place: Path) -> None:
        if place == path:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        move(source, place)

    monkeypatch.setattr(files, "_move", full)
    with pytest.raises(OSError, match=r"quota exceeded.*m\.onnx"):
        model_files.save(model(2), path, external_data=True)
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == before


def test_modes_of_files(tmp_path: Path) -> None:
    """That of a file that is replaced stays, and its data have it too; a new file has the usual one."""
    usual = tmp_path / "usual"
    usual.touch()
    path = tmp_path / "m.onnx"
    for mode in (stat.S_IMODE(usual.stat().st_mode), 0o600, 0o640):
        if mode != stat.S_IMODE(usual.stat().st_mode):
            path.chmod(mode)
        model_files.save(model(mode), path, external_data=True)
        assert {stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.glob("m.onnx*")} == {mode}


@pytest.mark.slow
def test_files_that_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies between them leaves no two that do not belong together; an error brings the old ones back."""
    folder = tmp_path / "made" / "here"

    def write(text: str, names: str) -> None:
        with files.atomic_files(folder, first="z", gone=["old"]) as made:
            for name in names:
                (made / name).write_text(text)

    def found() -> dict[str, str]:
        return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}

    write("first", "abz")
    (folder / "old").write_text("old")
    (folder / "mine").write_text("mine")
    before, rename = found(), Path.rename
    for end in range(1, 7):
        renamed: list[Path] = []

        def failing(path: Path, target: Path, end: int = end, renamed: list[Path] = renamed) -> Path:
            renamed.append(path)
            if len(renamed) == end:
                raise OSError(errno.EIO, "broken")
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", failing)
        with pytest.raises(OSError, match="broken"):
            write("second", "abz")
        assert found() == before

        def dying(path: Path, target: Path, end: int = end, renamed: list[Path] = renamed) -> Path:
            renamed.append(path)
            if len(renamed) == 7 + end:
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(path, target)

        del renamed[:]
        renamed += [folder] * 7
        monkeypatch.setattr(Path, "rename", dying)
        assert in_another_process(lambda: write("second", "abz")) == signal.SIGKILL
        texts = {name: text for name, text in found().items() if name in "abz"}
        assert len(set(texts.values())) < 2
        assert "z" not in texts or len(texts) == 3
        monkeypatch.setattr(Path, "rename", rename)
        for name, text in before.items():
            (folder / name).write_text(text)
    write("third", "az")
    assert found() == {"a": "third", "b": "first", "mine": "mine", "z": "third"}
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "/etc/passwd",
        "..",
        "../a",
        "a/../../b",
        "a/..",
        "C:a",
        "c:/a",
        "a\\b",
        "..\\a",
        "\\\\host\\share\\a",
        "a\0b",
        "NUL",
        "a/con",
        "com1",
        "out",
        "out/a",
        "half\ud800",
    ],
)
def test_names_that_lead_away(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    with pytest.raises(InvalidModelError, match="a name requires a path inside its folder, got "):
        files.path_within(tmp_path / "in", name, "a name")


def test_names_that_stay(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "there").symlink_to("a")
    for name in ("a", "./a", "a/b", "a//b", "..a", "a..", "ids:0", "aux.weight", "there", "Größe", " "):
        assert files.path_within(tmp_path / "folder", name, "a name") == tmp_path / "folder" / name
