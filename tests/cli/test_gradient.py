"""The command that adds gradients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from lstm_lower.cli.main import app
from tests.support.differences import run

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
layer (float[B,3] x) => (float loss, float[B,2] y, int64[B] best)
<float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {0, 1}>
{
  a = MatMul(x, w)  y = Add(a, b)  loss = ReduceSum <keepdims = 0> (y)  best = ArgMax <axis = 1, keepdims = 0> (y)
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "layer.onnx")
    return tmp_path / "layer.onnx"


def test_writes_gradients_of_all_weights(source: Path) -> None:
    result = CliRunner().invoke(app, ["gradient", str(source), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["gradients"] == ["grad/w", "grad/b"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = run(onnx.load(source.with_name("layer.gradient.onnx")), {"x": x})
    np.testing.assert_array_equal(made["grad/w"], np.stack([x.sum(0)] * 2, axis=1))
    np.testing.assert_array_equal(made["grad/b"], [2, 2])


def test_takes_names_and_seeds(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "made" / "g.onnx"
    target.parent.mkdir()
    options = ["--of", "y", "--wrt", "x,b", "--seeds", "-o", str(target)]
    result = CliRunner().invoke(app, ["gradient", str(source), *options])
    assert result.exit_code == 0, result.output
    assert "grad/x" in result.stdout
    seed = np.asarray([[1, 2], [0, 1]], np.float32)
    made = run(onnx.load(target), {"x": np.zeros((2, 3), np.float32), "seed/y": seed})
    np.testing.assert_array_equal(made["grad/x"], seed @ np.asarray([[1, 3, 5], [2, 4, 6]], np.float32))
    np.testing.assert_array_equal(made["grad/b"], [1, 3])


def test_long_lists_are_cut_short(tmp_path: Path) -> None:
    weights = ", ".join(f"float[1] w{i} = {{1}}" for i in range(20))
    total = f"loss = Sum({', '.join(f'w{i}' for i in range(20))})"
    header = '<ir_version: 8, opset_import: ["" : 18]> sum () => (float[1] loss)'
    onnx.save(onnx.parser.parse_model(f"{header} <{weights}> {{ {total} }}"), tmp_path / "sum.onnx")
    result = CliRunner().invoke(app, ["gradient", str(tmp_path / "sum.onnx")])
    assert result.exit_code == 0, result.output
    assert "20 gradients of loss" in result.stdout
    assert "grad/w10\n  and 9 more" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--of", "y"], "of requires a scalar output, got 'y' of shape [B, 2]; seeds=True (--seeds)"),
        (["--of", "z"], "of (--of) requires one of the model's outputs, loss, y, best, got 'z'"),
        (["--of", "best"], "of requires an output of a floating dtype, such as loss, y, got 'best' of INT64"),
        (["--wrt", "v"], "wrt requires names of the model's values, such as x, w, b, got 'v'"),
    ],
)
def test_refuses_and_writes_nothing(source: Path, options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["gradient", str(source), *options])
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())
    assert [path.name for path in source.parent.iterdir()] == ["layer.onnx"]


def test_names_the_way_to_a_seed_of_an_output_without_a_rank(source: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[N] x, int64[K] s) => (float[] y) { y = Reshape(x, s) }'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    options = ["--of", "y", "--wrt", "x", "--seeds"]
    onnx.save(model, source)
    result = CliRunner().invoke(app, ["gradient", str(source), *options])
    assert result.exit_code == 1
    assert "rank of 'seed/y', got a declaration without a shape; declare one" in " ".join(result.output.split())
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, None]))
    onnx.save(model, source)
    assert CliRunner().invoke(app, ["gradient", str(source), *options]).exit_code == 0
