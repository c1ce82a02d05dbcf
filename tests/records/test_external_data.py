"""External data: read from the model's own folder, from regular files, and never left to look up later."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper
from typer.testing import CliRunner

import lstm_lower as ll
from lstm_lower.cli.main import app
from lstm_lower.errors import InvalidModelError
from lstm_lower.records import model_files

HERE, ELSEWHERE = np.array([1, 2], np.float32), np.array([8, 9], np.float32)
FEED = np.array([10, 20], np.float32)


def external(name: str, **entries: object) -> onnx.TensorProto:
    tensor = onnx.TensorProto(
        name=name, data_type=onnx.TensorProto.FLOAT, dims=[2], data_location=onnx.TensorProto.EXTERNAL
    )
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def as_initializer(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> agraph (float[2] x) => (float[2] y) { y = Add (x, w) }'
    )
    model.graph.initializer.append(tensor)
    return model


def as_attribute(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = as_initializer(tensor)
    del model.graph.initializer[:]
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    return model


def as_initializer_of_a_branch(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> agraph (float[2] x) => (float[2] y) { '
        "yes = Constant <value = bool {1}> () "
        "y = If (yes) <then_branch = then () => (float[2] a) { a = Add (x, w) }, "
        "else_branch = otherwise () => (float[2] b) { b = Identity (x) }> }"
    )
    next(a.g for a in model.graph.node[1].attribute if a.name == "then_branch").initializer.append(tensor)
    return model


def in_a_function(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18, "own" : 1]> agraph (float[2] x) => (float[2] y) { y = own.Plus (x) }'
        ' <domain: "own", opset_import: ["" : 18]> Plus (x) => (y) { y = Add (x, w) }'
    )
    model.functions[0].node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    return model


PLACES = [as_initializer, as_attribute, as_initializer_of_a_branch, in_a_function]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`a` for the model and its weights; the working folder holds other weights of the same name."""
    for name, array in {"a": HERE, "b": ELSEWHERE}.items():
        (tmp_path / name).mkdir()
        array.tofile(tmp_path / name / "w.bin")
    monkeypatch.chdir(tmp_path / "b")
    return tmp_path / "a"


def write(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", [ll.lower, ll.optimize])
def test_a_result_holds_its_weights(
    folders: Path,
    place: Callable[[onnx.TensorProto], onnx.ModelProto],
    change: Callable[[Path], onnx.ModelProto],
) -> None:
    result = change(write(place(external("w", location="w.bin")), folders))
    assert b"w.bin" not in result.SerializeToString()
    np.testing.assert_array_equal(ll.Session(result).run({"x": FEED})["y"], FEED + HERE)


@pytest.mark.parametrize("place", PLACES)
def test_sessions_and_files_hold_the_weights(
    folders: Path, place: Callable[[onnx.TensorProto], onnx.ModelProto]
) -> None:
    path = write(place(external("w", location="w.bin")), folders)
    model_files.save(model_files.load(path), folders.parent / "b" / "saved.onnx")
    for model in (path, model_files.load(path), Path("saved.onnx")):
        np.testing.assert_array_equal(ll.Session(model).run({"x": FEED})["y"], FEED + HERE)


def test_weights_of_which_views_are_held(folders: Path) -> None:
    """What a pass folds from a weight is often a view of its file, which must outlive the reading."""
    model = model_files.load(write(as_initializer(external("w", location="w.bin")), folders))
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    view = tensor.numpy()[1:]
    model_files.save(model, folders / "saved.onnx")
    np.testing.assert_array_equal(view, HERE[1:])
    np.testing.assert_array_equal(ll.Session(folders / "saved.onnx").run({"x": FEED})["y"], FEED + HERE)


def test_a_protobuf_has_no_folder(folders: Path) -> None:
    model = as_initializer(external("w", location="w.bin"))
    for use in (ll.lower, ll.optimize, ll.Session, ll.Trainer, lambda m: ll.Session(m.SerializeToString())):
        with pytest.raises(InvalidModelError, match=r"'w' requires a folder.*onnx.load\(path\)"):
            use(model)


def link(folder: Path) -> str:
    (folder / "link.bin").symlink_to(folder.parent / "b" / "w.bin")
    return "link.bin"


def hard_link(folder: Path) -> str:
    (folder / "hard.bin").hardlink_to(folder.parent / "b" / "w.bin")
    return "hard.bin"


def fifo(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return "pipe"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        (lambda _: "../b/w.bin", "a path inside the model's folder, got '../b/w.bin'"),
        (lambda folder: str(folder / "w.bin"), "a path inside the model's folder"),
        (link, "a path inside the model's folder"),
        (hard_link, "a regular file of its own, got another name of a file"),
        (fifo, "a regular file of its own, got a pipe: 'pipe'"),
        (lambda _: "", "a path inside the model's folder"),
        (lambda _: ".", "a path inside the model's folder"),
        (lambda _: "C:w.bin", "a path inside the model's folder"),
        (lambda _: "..\\b\\w.bin", "a path inside the model's folder"),
    ],
    ids=["up", "absolute", "link", "hard link", "fifo", "empty", "folder", "drive", "backslash"],
)
def test_places_that_onnx_does_not_allow(folders: Path, location: Callable[[Path], str], message: str) -> None:
    path = write(as_initializer(external("w", location=location(folders))), folders)
    for use in (ll.lower, ll.optimize, ll.Session):
        with pytest.raises(InvalidModelError, match=message):
            use(path)


def test_a_link_inside_the_folder_is_followed(folders: Path) -> None:
    (folders / "link.bin").symlink_to("w.bin")
    result = ll.optimize(write(as_initializer(external("w", location="link.bin")), folders))
    np.testing.assert_array_equal(numpy_helper.to_array(result.graph.initializer[0]), HERE)


@pytest.mark.parametrize(
    "entries", [{"offset": 4}, {"offset": -4}, {"length": 4}, {"length": 80}, {"offset": 2**70}, {"offset": "two"}]
)
def test_data_must_be_there(folders: Path, entries: dict[str, object]) -> None:
    path = write(as_initializer(external("w", location="w.bin", **entries)), folders)
    with pytest.raises(InvalidModelError, match=r"requires|int|non-negative"):
        ll.optimize(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.dims.__setitem__(0, -2),
        lambda t: t.dims.extend([2**62] * 20),
        lambda t: setattr(t, "data_type", onnx.TensorProto.STRING),
        lambda t: setattr(t, "data_type", onnx.TensorProto.UNDEFINED),
    ],
    ids=["negative", "huge", "strings", "undefined"],
)
def test_shapes_and_types_that_no_file_holds(folders: Path, change: Callable[[onnx.TensorProto], object]) -> None:
    tensor = external("w", location="w.bin")
    change(tensor)
    with pytest.raises(InvalidModelError):
        ll.optimize(write(as_initializer(tensor), folders))


def test_weights_may_be_missing_until_they_are_read(folders: Path) -> None:
    path = write(as_initializer(external("w", location="missing.bin")), folders)
    shown = CliRunner().invoke(app, ["inspect", str(path)])
    assert shown.exit_code == 1
    assert "f32" in shown.stdout
    for use in (ll.lower, ll.optimize, ll.Session):
        with pytest.raises(
            InvalidModelError,
            match=r"initializer 'w' requires data of \[2\] FLOAT, got none: .*missing\.bin: No such file",
        ):
            use(path)
