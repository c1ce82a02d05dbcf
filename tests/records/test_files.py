"""What commands and checkpoints write: whole or not at all, through links, into devices and pipes."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from typer.testing import CliRunner

import lstm_lower as ll
from lstm_lower.cli.main import app
from lstm_lower.errors import LstmLowerError
from lstm_lower.records import files, model_files
from lstm_lower.runtime import feeds
from lstm_lower.runtime.training import checkpoint
from tests.support.training_models import quadratic

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 18]> agraph (float[2] x) => (float[2] y) { y = Neg (x) }'
)
ARRAYS = {"x": np.arange(3, dtype=np.float32)}


def save_checkpoint(path: Path) -> None:
    ll.Trainer(quadratic(), optimizer="sgd").save(path)


def lower_command(path: Path) -> None:
    run(path, "lower")


def optimize_command(path: Path) -> None:
    run(path, "optimize")


def run_command(path: Path) -> None:
    run(path, "run")


def run(path: Path, command: str) -> None:
    source = path.parent / "source.onnx"
    source.write_bytes(MODEL.SerializeToString())
    result = CliRunner().invoke(app, [command, str(source), "-o", str(path)])
    source.unlink()
    if result.exit_code:
        assert isinstance(result.exception, SystemExit)
        raise OSError(result.stderr)


WRITERS: list[Callable[[Path], None]] = [
    lambda path: model_files.save(MODEL, path),
    lambda path: files.write_text(path, "text"),
    lambda path: feeds.write_arrays(path, ARRAYS),
    lambda path: checkpoint.write(path, ARRAYS, {}),
    save_checkpoint,
    lower_command,
    optimize_command,
    run_command,
]
every_writer = pytest.mark.parametrize(
    "write", WRITERS, ids=["save", "text", "npz", "checkpoint", "trainer", "l", "o", "r"]
)


@every_writer
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path, write: Callable[[Path], None]) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "target").chmod(0o640)
    (tmp_path / "link").symlink_to("target")
    write(tmp_path / "link")
    assert (tmp_path / "link").readlink() == Path("target")
    assert (tmp_path / "target").stat().st_size > 3
    previous = {"target.previous"} if (tmp_path / "target.previous").exists() else set()
    assert {entry.name for entry in tmp_path.iterdir()} == {"link", "target"} | previous


@every_writer
def test_a_link_into_another_folder(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """The file that it names need not exist."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "b" / "target")
    write(tmp_path / "a" / "link")
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == ["link"]
    assert [entry.name for entry in (tmp_path / "b").iterdir()] == ["target"]


@every_writer
def test_a_pipe_is_written_into(tmp_path: Path, write: Callable[[Path], None]) -> None:
    pipe, plain = tmp_path / "pipe", tmp_path / "plain"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe)
    reader.join(timeout=20)
    write(plain)
    # A .npz file records when it was written.
    assert [len(data) for data in read] == [plain.stat().st_size]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["pipe", "plain"]


@every_writer
def test_a_device_is_written_into(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """Through links, so that the machine's own devices are in no danger."""
    (tmp_path / "null").symlink_to(os.devnull)
    (tmp_path / "full").symlink_to("/dev/full")
    write(tmp_path / "null")
    with pytest.raises(OSError, match=r"(?i)full: no space left|no space left on device: .*full"):
        write(tmp_path / "full")
    assert all(path.is_symlink() and stat.S_ISCHR(path.stat().st_mode) for path in tmp_path.iterdir())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["full", "null"]


@every_writer
def test_places_where_nothing_can_be_written(tmp_path: Path, write: Callable[[Path], None]) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="a file is required, got a folder"):
        write(tmp_path / "folder")
    if write not in (lower_command, optimize_command, run_command):
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            write(tmp_path / "nowhere" / "file")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
    assert not list((tmp_path / "folder").iterdir())


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(_: Path) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        model_files.save(MODEL, path, check=fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_of_a_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o600)
    with files.atomic_path(path) as temporary:
        temporary.write_bytes(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"new"


def wide() -> ir.Model:
    """A model whose weight is too large to stay where external data are asked for."""
    text = '<ir_version: 8, opset_import: ["" : 18]> wide (float[1000] x) => (float[1000] y) { y = Add(x, w) }'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(1000, dtype=np.float32), "w"))
    return model_files.load(proto)


def test_external_data_lie_beside_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "m.onnx").symlink_to(tmp_path / "b" / "m.onnx")
    model_files.save(wide(), tmp_path / "a" / "m.onnx", external_data=True)
    loaded = model_files.load(tmp_path / "a" / "m.onnx")
    np.testing.assert_array_equal(loaded.graph.initializers["w"].const_value.numpy(), np.arange(1000))  # type: ignore[union-attr]
    with pytest.raises(OSError, match="a regular file is required"):
        model_files.save(wide(), Path(os.devnull), external_data=True)


def test_without_large_weights_nothing_lies_beside(tmp_path: Path) -> None:
    model_files.save(quadratic(), tmp_path / "m.onnx", external_data=True)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert model_files.load(tmp_path / "m.onnx").graph.initializers["w"].const_value is not None


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder into which nobody writes")
def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(OSError, match=r"'/proc/m\.onnx'$"):
        model_files.save(quadratic(), Path("/proc/m.onnx"))


def test_notes_must_be_json(tmp_path: Path) -> None:
    with pytest.raises(LstmLowerError, match="notes of a checkpoint require what JSON can hold"):
        ll.Trainer(quadratic(), optimizer="sgd").save(tmp_path / "c", {"array": np.zeros(2)})
    assert not list(tmp_path.iterdir())


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PATIENCE", 0.05)
    for name, read, told in (
        ("a.onnx", model_files.load, "a file is required, got a pipe without a writer"),
        ("a.pb", ll.from_tensorflow, "a GraphDef is required, got a pipe"),
        ("a.npz", feeds.read_arrays, "a .npz file of arrays is required, got a pipe"),
    ):
        os.mkfifo(tmp_path / name)
        with pytest.raises((OSError, ll.LstmLowerError), match=told):
            read(tmp_path / name)
