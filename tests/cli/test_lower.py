"""`lstm-lower lower`: what it prints, writes, and leaves alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from lstm_lower.registry import key_of
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.command_line import SALIENCY, TRAIN, fail, mystery, only_standard, run, succeed
from tests.support.models import single_node_model
from tests.support.op_inputs import valid_inputs


@pytest.mark.slow
def test_lower_writes_a_model_that_loads(tmp_path: Path) -> None:
    text = succeed("lower", TRAIN, "-o", tmp_path / "low.onnx", "--opset", 21, "--schedule", "scan", "--verify-each")
    assert "1 BlockLSTM, 1 BlockLSTMGrad" in text
    assert "opset 21" in text
    assert f"wrote {tmp_path / 'low.onnx'}" in text
    assert only_standard(tmp_path / "low.onnx").opset_import[0].version == 21
    assert [path.name for path in tmp_path.iterdir()] == ["low.onnx"]


def test_lower_names_its_result_after_the_model(tmp_path: Path) -> None:
    source = tmp_path / "train.onnx"
    source.write_bytes(TRAIN.read_bytes())
    succeed("lower", source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.lowered.onnx", "train.onnx"]


def test_an_output_of_unknown_rank_is_named(tmp_path: Path) -> None:
    """onnx's checker refuses it without its name."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    inputs = [helper.make_tensor_value_info("x", 1, ["N"]), helper.make_tensor_value_info("shape", 7, ["R"])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "model.onnx")
    assert "requires a rank of 'y'" in fail("lower", tmp_path / "model.onnx", "-o", tmp_path / "low.onnx")


def test_lower_for_programs(tmp_path: Path) -> None:
    data = json.loads(succeed("lower", SALIENCY, "-o", tmp_path / "low.onnx", "--json", "--check"))
    assert data["output"] == str(tmp_path / "low.onnx")
    assert data["lowered"]["BlockLSTM"] == data["lowered"]["BlockLSTMGrad"] == 2
    assert data["check"]["passed"] is True
    assert {row["verdict"] for row in data["check"]["outputs"]} == {"ok"}


def test_lower_checks(tmp_path: Path) -> None:
    text = succeed("lower", TRAIN, "-o", tmp_path / "low.onnx", "--check")
    assert "passed: errors against float64" in text


def test_random_feeds_of_the_check_have_the_sizes_that_are_fixed(tmp_path: Path) -> None:
    text = succeed("lower", TRAIN, "-o", tmp_path / "low.onnx", "--check", "--dim", "batch=3")
    assert "passed: errors against float64" in text


def test_lower_with_external_data(tmp_path: Path) -> None:
    # Large enough not to be folded into its parts.
    kwargs = valid_inputs("BlockLSTM", I=60, H=60)
    source = tmp_path / "model.onnx"
    onnx.save(single_node_model("BlockLSTM", kwargs, constants=("w",)), source)
    succeed("lower", source, "-o", tmp_path / "low.onnx", "--external-data")
    (data,) = tmp_path.glob("low.onnx.*.data")
    assert data.stat().st_size >= kwargs["w"].nbytes
    only_standard(tmp_path / "low.onnx")
    succeed("check", source, "--lowered", tmp_path / "low.onnx")


@pytest.mark.slow
def test_lower_dumps_passes(tmp_path: Path) -> None:
    succeed("lower", TRAIN, "-o", tmp_path / "low.onnx", "--dump-passes", tmp_path / "passes")
    names = sorted(path.name for path in (tmp_path / "passes").iterdir())
    assert names[0] == "000-input.txt"
    assert [name.partition("-")[0] for name in names] == [f"{index:03d}" for index in range(len(names))]
    texts = {name.partition("-")[2]: (tmp_path / "passes" / name).read_text() for name in names}
    assert "BlockLSTMGrad" in texts["input.txt"]
    assert "BlockLSTMGrad" not in texts["lower-composites.txt"]
    assert "Scan(" in texts["lower-composites.txt"]
    assert any(name.startswith("loop-invariant-code-motion-") for name in texts)


@pytest.mark.slow
def test_dumps_are_whole_where_the_disk_is_full(tmp_path: Path) -> None:
    succeed("lower", TRAIN, "-o", tmp_path / "low.onnx", "--dump-passes", tmp_path / "whole")
    command = [
        sys.executable,
        "-m",
        "lstm_lower",
        "lower",
        TRAIN,
        "-o",
        tmp_path / "l",
        "--dump-passes",
        tmp_path / "cut",
    ]
    limited = ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", *map(str, command)]
    result = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr[:7]) == (1, "error: ")
    whole, cut = ({path.name: path.read_text() for path in (tmp_path / name).iterdir()} for name in ("whole", "cut"))
    assert 0 < len(cut) < len(whole)
    assert cut.items() <= whole.items()
    assert not (tmp_path / "l").exists()


def test_lower_warns_of_tensorflows_wrong_gradient(tmp_path: Path) -> None:
    kwargs = valid_inputs("BlockLSTMGrad")
    model = single_node_model("BlockLSTMGrad", kwargs)
    outputs = [f"fwd_{name}" for name in ("i", "cs", "f", "o", "ci", "co", "h")]
    inputs = list(model.graph.node[0].input)
    forward = helper.make_node("BlockLSTMV2", inputs[:9], outputs, name="forward", domain=model.graph.node[0].domain)
    model.graph.node.insert(0, forward)
    for index, name in enumerate(outputs):
        model.graph.node[1].input[9 + index] = name
    onnx.save(model, tmp_path / "model.onnx")
    result = run("lower", tmp_path / "model.onnx")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: BlockLSTMGrad 'node' is fed by a BlockLSTMV2")
    assert run("lower", tmp_path / "model.onnx", "--repair-v2-gradient").stderr == ""


@pytest.mark.parametrize("existing", [False, True])
def test_a_failure_writes_nothing(tmp_path: Path, existing: bool) -> None:
    target = tmp_path / "low.onnx"
    if existing:
        target.write_bytes(b"old")
    text = fail("lower", mystery(tmp_path), "-o", target)
    assert "Mystery 'first'" in text
    assert "Riddle 'second'" in text
    assert target.read_bytes() == b"old" if existing else not target.exists()


def test_what_onnxruntime_refuses_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no kernel")

    monkeypatch.setattr("lstm_lower.runtime.loadable.ort.InferenceSession", refuse)
    (tmp_path / "low.onnx").write_bytes(b"old")
    assert "onnxruntime refuses the model: no kernel" in fail("lower", TRAIN, "-o", tmp_path / "low.onnx")
    assert (tmp_path / "low.onnx").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["low.onnx"]


@pytest.mark.slow
def test_what_is_out_of_tolerance_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ORACLES["BlockLSTM"]
    monkeypatch.setitem(
        ORACLES._entries, key_of("BlockLSTM"), lambda **k: {name: 1.01 * v for name, v in right(**k).items()}
    )
    result = run("lower", SALIENCY, "-o", tmp_path / "low.onnx", "--check")
    assert result.exit_code == 1
    assert "out of tolerance; nothing is written" in result.stderr
    assert "failed: errors against float64" in result.stdout
    assert "wrote" not in result.stdout
    assert list(tmp_path.iterdir()) == []
