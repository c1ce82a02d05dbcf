"""The command line: what it prints, writes, and leaves alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import lstm_lower
from lstm_lower import opdef
from lstm_lower.cli import console
from lstm_lower.cli.main import app
from lstm_lower.errors import InvalidModelError
from lstm_lower.passes.rules.registry import RULES
from tests.support.command_line import GRAPHS, ROOT, SALIENCY, TRAIN, fail, mystery, only_standard, run, succeed
from tests.support.models import single_node_model
from tests.support.op_inputs import valid_inputs

# what all commands share


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
@pytest.mark.parametrize("words", [["inspect", str(TRAIN), "--json"], ["ops"], ["-h"], ["run", "-h"]])
def test_results_that_nowhere_has_room_for(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "lstm_lower", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: standard output: no space left on device\n"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_file_is_whole_though_the_words_about_it_found_no_room(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lstm_lower", "lower", str(TRAIN), "-o", str(tmp_path / "lowered.onnx")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: standard output: no space left on device\n")
    only_standard(tmp_path / "lowered.onnx")


# inspect


def test_inspect() -> None:
    text = succeed("inspect", TRAIN)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "input ids:0 i32[20,batch]" in lines
    assert "output grad_w:0 f32[48,128]" in lines
    assert any(line.startswith("BlockLSTMGrad gradients/lstm_grad/BlockLSTMGrad main x:f32[") for line in lines)
    assert "to lower 5 0" in lines


def test_inspect_for_programs() -> None:
    data = json.loads(succeed("inspect", SALIENCY, "--json"))
    assert data["lowerable"] is True
    assert len(data["before"]["composites"]) > len(data["after"]["composites"]) == 0
    assert data["after"]["loops"] == data["after"]["operators"].get("Scan", 0) + data["after"]["operators"].get(
        "Loop", 0
    )
    assert data["before"]["inputs"] == {"x:0": "f32[12,batch,8]"}


def test_inspect_counts_weights_that_are_constant_nodes(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> agraph (float[2] x) => (float[2] y) <float[2] v = {1, 2}> {
        w = Constant <value = float[2] {1, 2}> () half = Constant <value = float {0.5}> ()
        axes = Constant <value_ints = [0]> () a = Mul (x, w) b = Mul (a, half) y = Add (b, v) }"""
    )
    onnx.save(model, tmp_path / "m.onnx")
    weights = json.loads(succeed("inspect", tmp_path / "m.onnx", "--json"))["before"]
    assert (weights["weights"], weights["weight_bytes"]) == (2, 16)


def test_inspect_shows_what_cannot_be_lowered(tmp_path: Path) -> None:
    text = succeed("inspect", mystery(tmp_path))
    assert "cannot be lowered" in text
    assert "Mystery 'first'" in text
    data = json.loads(succeed("inspect", mystery(tmp_path), "--json"))
    assert data["lowerable"] is False
    assert data["after"] is None
    assert len(data["before"]["unsupported"]) == 2


def test_inspect_tells_where(tmp_path: Path) -> None:
    model = single_node_model("GRUBlockCell", valid_inputs("GRUBlockCell"))
    (node,) = model.graph.node
    node.name = "inner"
    results = list(model.graph.output)
    branches = {}
    for branch in ("then_branch", "else_branch"):
        branches[branch] = helper.make_graph([node], branch, [], results)
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, [])
    choice = helper.make_node("If", ["condition"], [f"{value.name}_if" for value in results], name="choice", **branches)
    outputs = [helper.make_tensor_value_info(f"{value.name}_if", TensorProto.FLOAT, None) for value in results]
    graph = helper.make_graph([choice], "g", [condition, *model.graph.input], outputs)
    onnx.save(helper.make_model(graph, opset_imports=model.opset_import, ir_version=8), tmp_path / "if.onnx")
    data = json.loads(succeed("inspect", tmp_path / "if.onnx", "--json"))
    places = [composite["where"] for composite in data["before"]["composites"]]
    assert sorted(places) == ["main / If 'choice' else_branch", "main / If 'choice' then_branch"]


# run


def test_run_on_random_feeds(tmp_path: Path) -> None:
    text = succeed("run", SALIENCY, "--dim", "batch=3", "--seed", 7, "--repeat", 2, "-o", tmp_path / "out.npz")
    assert f"wrote {tmp_path / 'out.npz'} (" in text
    assert "fastest of 2" in text
    with np.load(tmp_path / "out.npz") as first:
        assert first["saliency:0"].shape == (12, 3, 8)
        before = first["saliency:0"]
    succeed("run", SALIENCY, "--dim", "batch=3", "--seed", 7, "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as again:
        np.testing.assert_array_equal(again["saliency:0"], before)


@pytest.mark.slow
def test_run_on_recorded_feeds() -> None:
    data = json.loads(succeed("run", TRAIN, "-i", GRAPHS / "char_lstm_train.npz", "-p", "cpu", "--json"))
    rows = {row["name"]: row for row in data["outputs"]}
    assert rows["loss:0"]["values"] == pytest.approx(3.1932, abs=1e-3)
    assert all(row["relative_to_recorded"] < 1e-5 for row in rows.values())
    assert data["seconds"] > 0
    assert "rel. to recorded" in succeed("run", TRAIN, "-i", GRAPHS / "char_lstm_train.npz")


# check


@pytest.mark.slow
def test_check() -> None:
    text = succeed("check", SALIENCY, "-i", GRAPHS / "input_saliency.npz", "--finite-differences")
    assert "rel, recorded" in text
    assert "passed: errors against float64" in text
    assert "BlockLSTMGrad" in text


@pytest.mark.slow
def test_check_of_a_wrong_model(tmp_path: Path) -> None:
    succeed("lower", SALIENCY, "-o", tmp_path / "low.onnx")
    model = onnx.load(tmp_path / "low.onnx")
    (node,) = [node for node in model.graph.node if "saliency:0" in node.output]
    node.output[list(node.output).index("saliency:0")] = "before"
    model.graph.node.append(helper.make_node("Neg", ["before"], ["saliency:0"]))
    model.graph.node.sort(key=lambda n: "saliency_norm:0" in n.output)
    onnx.save(model, tmp_path / "wrong.onnx")
    succeed("check", SALIENCY, "--lowered", tmp_path / "low.onnx")
    result = run("check", SALIENCY, "--lowered", tmp_path / "wrong.onnx", "--json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["passed"] is False
    assert {row["name"]: row["verdict"] for row in data["outputs"]}["saliency:0"] == "out of tolerance"


# ops


def test_ops_lists_every_lowerable_op() -> None:
    listed = json.loads(succeed("ops", "--json"))
    assert {row["op"] for row in listed} == {op.op_type for op in opdef.REGISTRY.values() if op in RULES}
    text = succeed("ops")
    assert all(row["op"] in text and row["summary"] in text for row in listed)
    for domain, count in Counter(row["domain"] for row in listed).items():
        assert f"{count} ops, as nodes of domain {domain}" in text


def test_ops_shows_one_op() -> None:
    text = succeed("ops", "BlockLSTM")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "w T [I+H, 4*H]" in lines
    assert "forget_bias float 1.0" in lines
    data = json.loads(succeed("ops", "BlockLSTMGrad", "--json"))
    assert data["attributes"]["use_peephole"] == {"type": "bool", "default": None, "required": True}
    assert data["oracle"] is True


# everything


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lower", "missing.onnx"), "error: missing.onnx: no such file or directory\n"),
        (("lower", TRAIN, "-o", "missing/low.onnx"), "missing"),
        (("lower", TRAIN, "-o", "low.onnx", "--opset", "12"), "opset requires 13 to "),
        (("lower", TRAIN, "-o", "low.onnx", "--schedule", "fast"), "schedule requires auto, scan, unroll or chunk:K"),
        (("lower", TRAIN, "-o", "-"), "a file is required, got '-'"),
        (("lower", "garbage.onnx"), "garbage.onnx: an ONNX model is required"),
        (("lower", TRAIN, "-o", "low.onnx", "--dump-passes", "garbage.onnx"), "a folder is required, got a file"),
        (("lower", "."), "an ONNX file is required, got a directory that holds "),
        (("run", TRAIN, "--dim", "batch"), "--dim requires NAME=SIZE, got 'batch'"),
        (("run", TRAIN, "--dim", "B=2"), "open sizes of inputs, ['batch'], got 'B'"),
        (("run", TRAIN, "--dim", "batch=2", "--dim", "batch=3"), "--dim requires one size of 'batch', got 2 and 3"),
        (("run", TRAIN, "-i", "garbage.onnx"), "a .npz file as numpy.savez writes it is required"),
        (("report", "garbage.onnx", "-o", "./garbage.onnx"), "garbage.onnx: another file than the one that is read is"),
        (("run", TRAIN, "-i", "garbage.onnx", "-o", "garbage.onnx"), "another file than the one that is read is"),
        (("lower", TRAIN, "-o", "low\udcff.onnx"), "a name in UTF-8 is required"),
        (("run", TRAIN, "-p", "abacus"), "provider 'abacus' requires one of"),
        (("run", TRAIN, "-p", "opnvino"), "; did you mean 'openvino'?"),
        (("run", SALIENCY, "-i", GRAPHS / "char_lstm_train.npz"), "must be one of the inputs"),
        (("check", SALIENCY, "--lowered", "missing.onnx"), "missing.onnx"),
        (("check", SALIENCY, "--lowered", TRAIN), "the lowered model requires input '"),
        (("inspect", "garbage.onnx"), "an ONNX model is required"),
        (("ops", "Quux"), "ops requires an op that can be lowered, got 'Quux' (`lstm-lower ops` lists all"),
        (("ops", "blocklstmgard"), "got 'blocklstmgard'; did you mean BlockLSTMGrad or"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("garbage.onnx").write_bytes(b"\x80\x80 no model")
    text = fail(*arguments)
    assert message in text
    assert "Traceback" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["garbage.onnx"]


@pytest.mark.parametrize("command", ["run", "optimize"])
@pytest.mark.parametrize("name", ["gru_block_cell_train__static.pb", "block_lstm_train.saved_model"])
def test_graphs_of_tensorflow_are_shown_the_way(command: str, name: str) -> None:
    path = Path(__file__).parents[1] / "data" / "graphs" / name
    assert f"`lstm-lower lower {path}` imports TensorFlow's graphs" in fail(command, path)


def test_errors_for_programs(tmp_path: Path) -> None:
    result = run("lower", mystery(tmp_path), "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["type"] == "UnsupportedOpError"
    assert "Mystery 'first'" in error["message"]


@pytest.mark.slow
def test_version_and_help() -> None:
    assert succeed("--version").strip() == lstm_lower.__version__
    assert succeed("-h") == succeed("--help")
    for command in ("lower", "inspect", "run", "check", "ops", "optimize", "train"):
        assert command in succeed("--help")
        assert ("--data" if command == "train" else "--json") in succeed(command, "--help")
        assert succeed(command, "-h") == succeed(command, "--help")


def test_misuse_is_exit_code_2() -> None:
    assert run("lower").exit_code == 2
    assert run("run", TRAIN, "--repeat", 0).exit_code == 2


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"a": [float("nan"), float("inf"), 1.5], 2: ()})
    assert json.loads(capsys.readouterr().out) == {"a": ["nan", "inf", 1.5], "2": []}


def test_faults_of_ours_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr("lstm_lower.records.model_files.load", broken)
    assert isinstance(run("inspect", TRAIN).exception, KeyError)


def test_errors_with_brackets_are_printed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidModelError("x requires shape [B, H], got [bold]")

    monkeypatch.setattr("lstm_lower.records.model_files.load", refuse)
    assert fail("inspect", TRAIN).strip() == "error: x requires shape [B, H], got [bold]"


@pytest.mark.parametrize("rows", [1, 3])
def test_wide_tables_are_not_cut_in_pipes(rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    console.table("a", "b", rows=[["x" * 300, "[red]"]] * rows)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == rows + 1
    assert lines[1].split() == ["x" * 300, "[red]"]


@pytest.mark.slow
def test_as_a_program(tmp_path: Path) -> None:
    base = [sys.executable, "-m", "lstm_lower"]
    target = tmp_path / "low.onnx"
    lowered = subprocess.run(
        [*base, "lower", SALIENCY, "-o", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (lowered.returncode, lowered.stderr) == (0, "")
    only_standard(target)
    failed = subprocess.run([*base, "lower", mystery(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: 2 nodes cannot be lowered")


def test_lowering_twice_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    onnx.save(single_node_model("BlockLSTM", valid_inputs("BlockLSTM")), source)
    succeed("lower", source, "-o", tmp_path / "once.onnx")
    succeed("lower", tmp_path / "once.onnx", "-o", tmp_path / "twice.onnx")
    once, twice = (onnx.load(tmp_path / f"{name}.onnx") for name in ("once", "twice"))
    assert once.SerializeToString(deterministic=True) == twice.SerializeToString(deterministic=True)


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path, arguments: tuple[str, ...]) -> None:
    model = single_node_model("BlockLSTM", valid_inputs("BlockLSTM"))
    model.graph.node[0].name = "öß☃\U0001f600"
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    result = CliRunner(charset="ascii").invoke(app, ["inspect", str(path), *arguments])
    assert result.exit_code == 0, result.exception
    if arguments:
        assert model.graph.node[0].name in json.dumps(json.loads(result.stdout), ensure_ascii=False)
    else:
        assert r"\xf6\xdf\u2603\U0001f600" in result.stdout
