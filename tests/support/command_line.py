"""Runs the command line in this process, on the models of the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from typer.testing import CliRunner

from lstm_lower.cli.main import app

ROOT = Path(__file__).parents[2]
GRAPHS = ROOT / "examples" / "graphs"
TRAIN, SALIENCY = GRAPHS / "char_lstm_train.onnx", GRAPHS / "input_saliency.onnx"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def succeed(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def fail(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ")
    return result.stderr


def mystery(folder: Path) -> Path:
    """A model with two nodes that cannot be lowered."""
    nodes = [
        helper.make_node("Mystery", ["x"], ["t"], name="first", domain="tf"),
        helper.make_node("Riddle", ["t"], ["y"], name="second", domain="elsewhere"),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in "xy"]
    imports = [helper.make_opsetid(domain, version) for domain, version in (("", 18), ("tf", 1), ("elsewhere", 1))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    path = folder / "mystery.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def only_standard(path: Path) -> onnx.ModelProto:
    model = onnx.load(path)
    assert [opset.domain for opset in model.opset_import] == [""]
    onnx.checker.check_model(str(path), full_check=True)
    ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return model
