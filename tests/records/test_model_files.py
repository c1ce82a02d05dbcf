"""Models in files and out: bytes that are none, text that is no text."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.records import model_files

MODEL = '<ir_version: 8, opset_import: ["" : 18]> TEXT (float[2] x) => (float[2] y) { y = Neg (x) }'


def no_text() -> bytes:
    """A model whose graph has a name that is no UTF-8."""
    return onnx.parser.parse_model(MODEL).SerializeToString().replace(b"TEXT", b"T\xff\xfeT")


@pytest.mark.parametrize(
    "write",
    [
        ll.lower,
        ll.optimize,
        lambda path: ll.Session(model_files.load(path)),
        lambda path: model_files.save(model_files.load(path), path.with_name("out.onnx")),
        lambda path: model_files.save(model_files.load(path), path.with_name("out.onnx"), external_data=True),
    ],
    ids=["lower", "optimize", "session", "save", "save beside"],
)
def test_text_that_is_none_is_refused(tmp_path: Path, write: Callable[[Path], object]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(no_text())
    with pytest.raises(InvalidModelError, match=r"can be written is required, got one that fails: .*utf-8"):
        write(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("data", [b"", b"\xff" * 50, b"\x08\x08", no_text()[:-9]])
def test_bytes_that_are_no_model(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(InvalidModelError, match=r"m\.onnx: an ONNX model"):
        model_files.load(path)


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ("model.weights.h5", r"a Keras model; ll\.from_keras\(keras\.models\.load_model"),
        ("net/data.pkl", "a file of PyTorch's; ll.from_torch"),
        ("x.npy", "arrays of numpy"),
        ("readme.txt", "bytes that are not one"),
    ],
)
def test_models_of_others_are_named(tmp_path: Path, member: str, said: str) -> None:
    path = tmp_path / "m.onnx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, b"1")
    with pytest.raises(InvalidModelError, match=f"an ONNX model is required, got {said}"):
        model_files.load(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x89HDF\r\n\x1a\n\0\0", "a Keras model"),
        (b"\x1c\0\0\0TFL3\x14\0", "a TensorFlow Lite model"),
        (b"\x1c\0\0\0ORTM\x14\0", "a model in onnxruntime's own format"),
        (b"PK\x03\x04 no archive", "bytes that are not one"),
    ],
)
def test_beginnings_of_others_are_named(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(InvalidModelError, match=f"an ONNX model is required, got {said}"):
        model_files.load(path)


def test_a_fault_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    """onnx_ir would log it, too."""
    model = onnx.parser.parse_model(MODEL)
    model.graph.node[0].input[0] = "nowhere"
    with pytest.raises(InvalidModelError, match="nowhere"):
        ll.lower(model)
    assert capfd.readouterr() == ("", "")


def test_a_fault_deep_inside_is_named() -> None:
    model = onnx.parser.parse_model(MODEL)
    model.graph.initializer.add(name="w", data_type=99, dims=[1], raw_data=b"1234")
    with pytest.raises(InvalidModelError, match=r"fails: .*99"):
        model_files.to_proto(model_files.load(model))
    assert isinstance(model_files.load(onnx.parser.parse_model(MODEL)), ir.Model)


def test_an_input_that_is_an_output_keeps_what_is_declared_of_it() -> None:
    """In loops and functions too: a state that is handed on, a result twice."""
    text = """<ir_version: 10, opset_import: ["": 18, "mine": 1]>
    g (float[2, N] x, float[4, 3] xs) => (float[?, ?] x, float[?, 5] y, float[2, ?] y) {
      y = mine.f (x)
      h, ys = Scan <num_scan_inputs = 1,
                    body = step (float[3] h, float[3] e) => (float[?] h, float[?] h) { u = Neg (e) }> (x, xs) }
    <domain: "mine", opset_import: ["": 18]> f (a) => (b) {
      c = Constant <value = bool {1}> ()
      b = If (c) <then_branch = t () => (float[2, ?] d, float[?, 5] d) { d = Identity (a) },
                  else_branch = e () => (float[?, ?] k, float[?, ?] k) { k = Identity (a) }> }"""
    model = model_files.load(onnx.parser.parse_model(text))
    assert model.graph.inputs[0].shape == ir.Shape([2, "N"])
    assert model.graph.outputs[1].shape == ir.Shape([2, 5])
    (step,) = subgraphs_of(model.graph[1])
    assert step.outputs[0].shape == ir.Shape([3])
    (function,) = model.functions.values()
    assert subgraphs_of(function[1])[0].outputs[0].shape == ir.Shape([2, 5])
