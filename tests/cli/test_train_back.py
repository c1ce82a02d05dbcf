"""`lstm-lower train --back`: from a found file to trained weights in the same form, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from lstm_lower.checkpoints.bundle import find_checkpoint, open_checkpoint
from lstm_lower.cli.main import app
from lstm_lower.runtime.training import checkpoint
from tests.support import tensorflow_programs
from tests.support.tensorflow_programs import ROWS, SEQUENCES, TARGETS


def train(model: Path, back: Path, *more: object) -> Any:
    words = ["--out", back.parent / "run", "--batch-size", 8, "--no-shuffle", "--no-plot", "--back", back, *more]
    return CliRunner().invoke(app, ["train", str(model), *map(str, words)], env={"COLUMNS": "200"})


def three_batches(path: Path, **batch: Any) -> Path:
    """Three times the same batch."""
    np.savez(path, **{name: np.concatenate([x] * 3) for name, x in batch.items()})
    return path


def product(path: Path, *, as_input: bool) -> Path:
    """A model of one product, whose weight is a constant, or an input with a default."""
    weight = onnx.numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    data = [onnx.helper.make_tensor_value_info("x", 1, ["batch", 3])]
    data += [onnx.helper.make_tensor_value_info("w", 1, [3, 2])] if as_input else []
    result = onnx.helper.make_tensor_value_info("y", 1, ["batch", 2])
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "product", data, [result], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("as_input", [False, True])
def test_an_onnx_file_comes_back_with_trained_weights(as_input: bool, tmp_path: Path) -> None:
    model = product(tmp_path / "model.onnx", as_input=as_input)
    before = onnx.load(model)
    data = three_batches(tmp_path / "data.npz", x=ROWS, target=TARGETS)
    options = ("--loss", "mse", "--optimizer", "sgd", "--learning-rate", 0.1, "--data", data)
    result = train(model, tmp_path / "trained.onnx", *options)
    assert result.exit_code == 0, result.output
    after = onnx.load(tmp_path / "trained.onnx")
    (weight,) = (onnx.numpy_helper.to_array(x) for x in after.graph.initializer)
    np.testing.assert_array_equal(weight, checkpoint.read_arrays(tmp_path / "run" / "checkpoint.safetensors")[0]["w"])
    assert np.abs(weight - 1).max() > 1e-3
    assert after.graph.node == before.graph.node
    assert [x.name for x in after.graph.input] == [x.name for x in before.graph.input]
    refused = train(model, model, *options)
    assert refused.exit_code == 1
    assert "another file than the one that is read" in refused.output
    assert onnx.load(model) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ending", "options"),
    [("plain", ".meta", ("--outputs", "loss:0,train")), ("saved", "", ("--signature", "train"))],
)
def test_a_file_of_tensorflow_comes_back_trained(
    kind: str, ending: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow")
    tensorflow_programs.run(kind, "begin", tmp_path)
    x, suffix = (SEQUENCES, "") if kind == "saved" else (ROWS, ":0")
    data = three_batches(tmp_path / "data.npz", **{f"x{suffix}": x, f"y{suffix}": TARGETS})
    result = train(tmp_path / f"begin{ending}", tmp_path / "trained", "--data", data, *options)
    assert result.exit_code == 0, result.output
    (tmp_path / "on").mkdir()
    tensorflow_programs.run(kind, "go_on", tmp_path / "trained", tmp_path / "on")
    read = [open_checkpoint(find_checkpoint(path) or path) for path in (tmp_path / "on" / "after", tmp_path / "six")]
    got, wanted = ({name: each.read(name) for name in each.tensors} for each in read)
    for name, value in wanted.items():
        if not value.dtype.hasobject:
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
