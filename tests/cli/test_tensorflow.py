"""The command line on TensorFlow graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

import lstm_lower as ll
from lstm_lower.cli.main import app
from tests.support.tensorflow_cases import relative_error

GRAPHS = Path(__file__).parents[1] / "data" / "graphs"
CASE = "block_lstm_train__dynbatch"


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_lower_a_graph_def(tmp_path) -> None:
    pytest.importorskip("tf2onnx")
    facts = json.loads((GRAPHS / f"{CASE}.json").read_text())
    inputs = {entry["name"]: entry["tensor"] for entry in facts["inputs"]}
    target = tmp_path / "out.onnx"
    code, text = invoke(
        "lower", str(GRAPHS / f"{CASE}.pb"), "--inputs", ",".join(inputs.values()), "--outputs", "loss:0,grad_w:0",
        "-o", str(target),
    )  # fmt: skip
    assert code == 0, text
    recorded = np.load(GRAPHS / f"{CASE}.npz")
    results = ll.Session(target).run({tensor: recorded[f"in:{name}"] for name, tensor in inputs.items()})
    assert set(results) == {"loss:0", "grad_w:0"}
    assert relative_error(results["grad_w:0"], recorded["out:grad_w"]) < 1e-5


def test_inspect_a_graph_def() -> None:
    pytest.importorskip("tf2onnx")
    code, text = invoke("inspect", str(GRAPHS / f"{CASE}.pb"))
    assert code == 0
    assert "BlockLSTMGrad" in text


def test_errors(tmp_path) -> None:
    pytest.importorskip("tf2onnx")
    graph = tmp_path / "broken.pb"
    graph.write_bytes((GRAPHS / f"{CASE}.pb").read_bytes()[:1000])
    code, text = invoke("lower", str(graph), "-o", str(tmp_path / "out.onnx"))
    assert code == 1, text
    code, text = invoke("lower", str(tmp_path / "model.onnx"), "--inputs", "x:0")
    assert code != 0
    assert not (tmp_path / "out.onnx").exists()


def test_import_walks_once_for_all_outputs() -> None:
    """The quicker methods find and change the same as tf2onnx's own."""
    pytest.importorskip("tf2onnx")
    from benchmarks.importing import training_graph
    from lstm_lower.tensorflow import convert, importer, quick

    planned = importer.plan(training_graph(200), outputs=["loss:0", "train"], weights="inputs")
    folded = convert.fold(planned.graph_def, planned.inputs, planned.outputs)
    calls: list[int] = []

    def counted(graph: Any, names: Any, *rest: Any, **options: Any) -> Any:
        calls.append(len(names))
        found = walk(graph, names, *rest, **options)
        assert set(found) == set(slow(graph, names, *rest, **options))
        return found

    walk, slow = quick._nodes_behind, quick.Graph.extract_sub_graph_nodes
    with mock.patch.object(quick, "_nodes_behind", counted):
        model = convert.convert(folded, planned.inputs, planned.outputs, 18)
    assert {value.name for value in model.graph.output} == set(planned.outputs)
    assert max(calls) == len(planned.outputs)
