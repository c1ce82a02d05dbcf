"""What names out of files are to a terminal: shown, whatever they hold, by every command, error, warning and page."""

from __future__ import annotations

import json
import re
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lstm_lower as ll
from lstm_lower.errors import InvalidModelError, LstmLowerWarning, requires, shown, some
from lstm_lower.graph.dump import dump
from lstm_lower.records.model_files import load
from lstm_lower.report.page import _data as data_of_page
from tests.support.command_line import run

# Commands to terminals, as C0 and C1 have them, marks of direction and of no room, and lines that look like ours.
HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x9b31m\r\x00\x7f\u202e\u2066\u200b\ufeff\u2028\U000e0041\nwrote /etc/passwd\nerror: no"
)
SENT = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
# A text that ends in a zero byte is none for protobuf's C++ readers.
NAME = HOSTILE.replace("\x00", "")


def test_texts() -> None:
    assert shown("ids:0 größe 長さ a\\b") == "ids:0 größe 長さ a\\b"
    assert shown("a\nb\x1b\t") == r"a\nb\x1b\t"
    assert shown("a\nb\u202e\ud800", lines=True) == "a\nb\\u202e\\ud800"
    for letter in map(chr, range(0x3000)):
        if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp"):
            assert shown(letter) == letter.encode("unicode_escape").decode()
    assert shown(shown(HOSTILE)) == shown(HOSTILE)


def test_errors_and_warnings() -> None:
    for text in (
        str(InvalidModelError(HOSTILE)),
        requires(HOSTILE, HOSTILE, HOSTILE, "a shape", "none"),
        some([HOSTILE] * 9),
        warnings.formatwarning(LstmLowerWarning(HOSTILE), LstmLowerWarning, "file.py", 1),
    ):
        assert not SENT.search(text)
    assert InvalidModelError(HOSTILE).args == (HOSTILE,)
    assert "\n" not in requires(HOSTILE, HOSTILE, HOSTILE, "a shape", "none") + some([HOSTILE] * 9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models all of whose names are hostile: one that runs, one that fails in a run, one with an op of nobody's."""
    made = tmp_path_factory.mktemp("models")
    x = helper.make_tensor_value_info(f"x{NAME}", TensorProto.FLOAT, [f"N{NAME}", 4])
    y = helper.make_tensor_value_info(f"y{NAME}", TensorProto.FLOAT, [f"M{NAME}", 3])
    weights = [numpy_helper.from_array(np.ones((4, 3), np.float32), f"w{NAME}")]
    shape = [numpy_helper.from_array(np.array([7, 3]), f"w{NAME}")]
    for file, op, domain, tensors in (
        ("runs", "MatMul", "", weights),
        ("fails", "Reshape", "", shape),
        ("foreign", f"Op{NAME}", f"domain{NAME}", weights),
    ):
        node = helper.make_node(op, [x.name, f"w{NAME}"], [y.name], name=f"n{NAME}", domain=domain)
        graph = helper.make_graph([node], f"g{NAME}", [x], [y], tensors, doc_string=NAME)
        imports = [
            helper.make_opsetid(name, version) for name, version in (("", 18), (domain, 1)) if name or version > 1
        ]
        model = helper.make_model(graph, opset_imports=imports, ir_version=9, producer_name=NAME, doc_string=NAME)
        model.metadata_props.add(key=f"k{NAME}", value=NAME)
        onnx.save(model, made / f"{file}.onnx")
    np.savez(made / "strange.npz", **{"other\x1b[2J\u202e": np.ones(3)})
    return made


COMMANDS = [
    ("inspect", "runs.onnx"),
    ("inspect", "foreign.onnx"),
    ("lower", "foreign.onnx", "-o", "o.onnx"),
    ("lower", "runs.onnx", "-o", "o.onnx", "--dump-passes", "dumps"),
    ("optimize", "runs.onnx", "-o", "o.onnx", "--explain"),
    ("gradient", "runs.onnx", "--of", f"y{NAME}", "--seeds", "-o", "o.onnx"),
    ("gradient", "runs.onnx", "--of", "nothing", "-o", "o.onnx"),
    ("run", "runs.onnx"),
    ("run", "fails.onnx"),
    ("run", "runs.onnx", "-i", "strange.npz"),
    ("check", "runs.onnx"),
    ("diff", "runs.onnx", "fails.onnx"),
    ("report", "runs.onnx", "-o", "r.html", "--no-run"),
    ("train", "runs.onnx", "--loss", "mse", "--optimizer", "sgd", "--data", "strange.npz", "--out", "run", "--no-plot"),
    ("export", "runs.onnx", "--loss", "mse", "--optimizer", "sgd", "--files", "train", "-o", "bundle"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    result = run(*words)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    # onnxruntime writes past Python.
    text = result.output + capfd.readouterr().err
    assert not SENT.search(text)
    assert not re.search(r"^(wrote /etc|error: no)", text, re.MULTILINE)
    if words[0] != "report":
        assert r"\x1b" in text or "nothing to lower" in text or "wrote o.onnx" in text


def test_json_is_exact(folder: Path) -> None:
    data = json.loads(run("inspect", folder / "runs.onnx", "--json").stdout)
    assert list(data["before"]["inputs"]) == [f"x{NAME}"]


def test_reports_and_dumps(folder: Path) -> None:
    assert not SENT.search(json.loads(data_of_page({NAME: [NAME, {"a": NAME}]}))[shown(NAME, lines=True)][0])
    text = dump(load(folder / "runs.onnx"), node_names=True)
    assert not SENT.search(text)
    assert not re.search("^wrote", text, re.MULTILINE)
    trainer = ll.Trainer(ll.from_onnx(folder / "runs.onnx", "mse", "sgd"))
    assert not SENT.search(repr(trainer))
