"""The commands of the loop optimiser."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from typer.testing import CliRunner

from lstm_lower.cli.main import app
from tests.support.loop_checks import assert_same, run
from tests.support.models import single_node_model
from tests.support.op_inputs import valid_inputs

LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[2,3,4] sequence, float[3,4] first, float[4,4] w) => (float[3,4] last, float[2,3,4] made)
{
  last, made = Scan <num_scan_inputs = 1, body = step (float[3,4] s, float[3,4] x) => (float[3,4] u, float[3,4] y)
    { t = MatMul(x, w) u = Add(s, t) y = Mul(u, x) }> (first, sequence)
}
"""


def test_optimize_writes_an_equal_model(tmp_path: Path) -> None:
    source, target, dumps = tmp_path / "loop.onnx", tmp_path / "out.onnx", tmp_path / "dumps"
    model = onnx.parser.parse_model(LOOP)
    onnx.save(model, source)
    options = ["--verify-each", "--dump-passes", str(dumps), "--json"]
    result = CliRunner().invoke(app, ["optimize", str(source), "-o", str(target), *options])
    assert result.exit_code == 0, result.output
    assert "loop-invariant-code-motion" in json.loads(result.stdout)["passes"]
    assert len(list(dumps.iterdir())) > 1
    random = np.random.default_rng(0)
    shapes = {"sequence": (2, 3, 4), "first": (3, 4), "w": (4, 4)}
    feeds = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    assert_same(run(model, feeds), run(onnx.load(target), feeds))


def test_optimize_explains_what_it_left_alone(tmp_path: Path) -> None:
    source = tmp_path / "loop.onnx"
    onnx.save(onnx.parser.parse_model(LOOP), source)
    result = CliRunner().invoke(app, ["optimize", str(source), "--explain"])
    assert result.exit_code == 0, result.output
    assert "left alone: reduction-recognition" in result.stdout
    assert (tmp_path / "loop.optimized.onnx").is_file()


def test_optimize_refuses_a_schedule_and_writes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "loop.onnx"
    onnx.save(onnx.parser.parse_model(LOOP), source)
    result = CliRunner().invoke(app, ["optimize", str(source), "--schedule", "chunk:0"])
    assert result.exit_code == 1
    assert "schedule requires" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["loop.onnx"]


def test_optimize_says_that_there_was_nothing_to_do(tmp_path: Path) -> None:
    source = tmp_path / "plain.onnx"
    onnx.save(
        onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) {y = Neg(x)}'),
        source,
    )
    result = CliRunner().invoke(app, ["optimize", str(source)])
    assert result.exit_code == 0, result.output
    assert "nothing to do: the model has no loops\n" in result.stdout
    result = CliRunner().invoke(app, ["optimize", str(source), "--json"])
    assert json.loads(result.stdout)["notes"] == ["nothing to do: the model has no loops"]


def test_optimize_says_that_lowering_comes_first(tmp_path: Path) -> None:
    source = tmp_path / "composite.onnx"
    onnx.save(single_node_model("BlockLSTM", valid_inputs("BlockLSTM")), source)
    result = CliRunner().invoke(app, ["optimize", str(source)])
    assert result.exit_code == 1
    assert "error: 1 BlockLSTM: recurrent ops have loops only after lowering; run lower first" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["composite.onnx"]


def test_optimize_runs_passes_of_ones_own_choice(tmp_path: Path) -> None:
    source, target = tmp_path / "loop.onnx", tmp_path / "out.onnx"
    onnx.save(onnx.parser.parse_model(LOOP), source)
    command = ["optimize", str(source), "-o", str(target), "--json", "--passes"]
    result = CliRunner().invoke(app, [*command, "code-sinking, loop-invariant-code-motion"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["passes"] == ["code-sinking", "loop-invariant-code-motion"]
    target.unlink()
    result = CliRunner().invoke(app, [*command, "code-sinkin"])
    assert result.exit_code == 1
    assert "did you mean 'code-sinking'?" in result.output
    assert not target.exists()


def test_optimize_keeps_weights_where_they_are_external(tmp_path: Path) -> None:
    source, target = tmp_path / "loop.onnx", tmp_path / "made" / "out.onnx"
    target.parent.mkdir()
    model = onnx.parser.parse_model(LOOP)
    weight = onnx.numpy_helper.from_array(np.ones((16, 16), np.float32), "big")
    model.graph.initializer.append(weight)
    model.graph.output.append(onnx.helper.make_tensor_value_info("big", onnx.TensorProto.FLOAT, [16, 16]))
    onnx.save(model, source, save_as_external_data=True, location="weights", size_threshold=0)
    for options, files in (([], 2), (["--no-external-data"], 1)):
        result = CliRunner().invoke(app, ["optimize", str(source), "-o", str(target), *options])
        assert result.exit_code == 0, result.output
        assert len(list(target.parent.iterdir())) == files
