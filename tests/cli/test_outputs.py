"""What commands write: never over what they read, and in the folders that they were told."""

from __future__ import annotations

import inspect
import json
import shutil
import typing
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lstm_lower as ll
from lstm_lower.cli.main import OUTPUTS, app
from lstm_lower.records import manifest
from tests.support.bundles import classifier
from tests.support.command_line import fail, run

FILES = Path(__file__).parents[1] / "data" / "tensorflow_files"
REFUSED = "another file than the one that is read is required as output"
# Parameters of commands that are paths and are read.
READ = {"model", "first", "second", "data", "inputs", "initial", "trained", "validation", "checkpoint", "lowered"}
READ |= {"onnxruntime_web", "adapter", "feeds"}


def test_every_path_is_read_or_written() -> None:
    """An option of a new command that takes a path belongs to one of the two."""
    paths = {
        name
        for command in app.registered_commands
        if command.callback is not None
        for name, parameter in inspect.signature(command.callback).parameters.items()
        if Path in (hint := typing.get_args(parameter.annotation)[0], *typing.get_args(hint))
    }
    assert paths - OUTPUTS <= READ
    assert paths >= OUTPUTS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with weights in a file beside it, other names of these, and data for it."""
    weight = numpy_helper.from_array(np.ones((64, 16), np.float32), "w")
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name, size in (("x", 64), ("y", 16))
    ]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", infos[:1], infos[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    np.savez(tmp_path / "x.npz", x=np.ones((2, 64), np.float32))
    (tmp_path / "link.png").symlink_to("m.bin")
    (tmp_path / "model.png").hardlink_to(tmp_path / "m.onnx")
    return tmp_path


COMMANDS = {
    "lower": ["m.onnx", "-o"],
    "optimize": ["m.onnx", "-o"],
    "gradient": ["m.onnx", "--of", "y", "--wrt", "w", "-o"],
    "report": ["m.onnx", "--data", "x.npz", "-o"],
    "run": ["m.onnx", "-i", "x.npz", "-o"],
    "bench": ["m.onnx", "-i", "x.npz", "--trace"],
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("target", ["m.onnx", "./m.bin", "link.png", "model.png", "x.npz"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_output_takes_the_place_of_an_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, target: str
) -> None:
    words = COMMANDS[command]
    if target == "x.npz" and target not in words:
        pytest.skip("not read")
    monkeypatch.chdir(folder)
    before = contents(folder)
    assert REFUSED in fail(command, *words, target)
    assert contents(folder) == before


def test_neither_does_a_picture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for target in ("link.png", "model.png"):
        assert REFUSED in fail("bench", "m.onnx", "--plot", target)


@pytest.mark.slow
def test_nor_a_bundle(tmp_path: Path) -> None:
    ll.export_training(classifier(), tmp_path)
    before = contents(tmp_path)
    words = ["-o", tmp_path, "--files", "train"]
    assert REFUSED in fail("export", tmp_path / "train.onnx", *words)
    # It would leave with the bundle that was there.
    assert REFUSED in fail("export", tmp_path / "predict.onnx", *words, "--loss", "mse", "--optimizer", "sgd")
    assert contents(tmp_path) == before


def test_nor_what_goes_into_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    shutil.copy("m.onnx", "000-input.txt")
    Path("m.lowered.onnx").hardlink_to("m.onnx")
    before = contents(folder)
    assert REFUSED in fail("lower", "000-input.txt", "-o", "low.onnx", "--dump-passes", ".")
    assert REFUSED in fail("report", "m.onnx", "-i", "x.npz", "-o", "page.html", "--node-data", ".")
    assert contents(folder) == before


def test_dumps_follow_no_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Path("dumps").mkdir()
    Path("dumps/000-input.txt").symlink_to("../victim")
    assert "a plain file is required, got a link" in fail("lower", "m.onnx", "-o", "low.onnx", "--dump-passes", "dumps")
    assert not Path("victim").exists()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("saved_2", "saved_2/saved_model.pb"),
        ("saved_2", "saved_2/fingerprint.pb"),
        ("saved_2", "saved_2/variables/variables.index"),
        ("saved_2/saved_model.pb", "saved_2/variables/variables.data-00000-of-00001"),
        ("step/model.ckpt-0.meta", "step/model.ckpt-0.data-00000-of-00001"),
        ("step", "step/checkpoint"),
    ],
)
def test_nor_of_tensorflows_files(tmp_path: Path, source: str, target: str) -> None:
    shutil.copytree(FILES, tmp_path / "files")
    before = contents(tmp_path)
    # What is taken of the graph is said before.
    found = run("lower", tmp_path / "files" / source, "-o", tmp_path / "files" / target)
    assert (found.exit_code, REFUSED in found.stderr) == (1, True), found.output
    assert contents(tmp_path) == before


def test_a_description_of_others_names_no_files(tmp_path: Path) -> None:
    """Files that a `training.json` lists leave with its bundle, as far as a bundle can have them."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    victims = [tmp_path / "thesis.txt", folder / "notes.txt", folder / "predict.onnx.bak", tmp_path / "train.onnx"]
    for victim in victims:
        victim.write_text("precious")
    names = [*map(str, victims), "../thesis.txt", "../train.onnx", "notes.txt", "predict.onnx.bak", "..", "", 3, None]
    entries = {str(name): {"model": name, "data": [name]} for name in names}
    entries["train"] = {"model": "../train.onnx", "data": ["eval.onnx", "init.onnx.0123456789abcdef.data"]}
    for description, found in (({"files": entries}, 2), ([], 0), (1, 0), ({"files": {"train": []}}, 0)):
        (folder / "training.json").write_text(json.dumps(description))
        assert len(manifest.files_of(folder)) == found
    (folder / "training.json").write_text(json.dumps({"files": entries}))
    ll.export_training(classifier(), folder, files=("train",))
    assert [victim.read_text() for victim in victims] == ["precious"] * len(victims)
    assert {path.name for path in folder.iterdir()} == {"notes.txt", "predict.onnx.bak", "train.onnx", "training.json"}


def test_links_in_a_bundles_folder_are_not_followed(tmp_path: Path) -> None:
    folder, victim = tmp_path / "bundle", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    for name in ("training.json", "train.onnx"):
        (folder / name).symlink_to(victim)
    ll.export_training(classifier(), folder, files=("train",))
    assert victim.read_text() == "precious"
    assert json.loads((folder / "training.json").read_text())["version"] == 2
    assert not any(path.is_symlink() for path in folder.iterdir())
