"""`lstm-lower inspect` says what is wrong, and shows all the same what there is."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser

from tests.support.command_line import run
from tests.support.models import single_node_model
from tests.support.op_inputs import valid_inputs


def inspect(folder: Path, model: onnx.ModelProto) -> dict[str, object]:
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    assert run("inspect", folder / "m.onnx").exit_code == 1
    result = run("inspect", folder / "m.onnx", "--json")
    assert result.exit_code == 1, result.output
    data: dict[str, object] = json.loads(result.stdout)
    return data


def test_a_weight_without_a_dtype(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> agraph (float[2] x) => (float[2] y) { y = Add (x, w) }'
    )
    model.graph.initializer.add(name="w", dims=[2], raw_data=bytes(8))
    data = inspect(tmp_path, model)
    assert not data["lowerable"]
    assert "'w'" in str(data["fault"])


def test_a_weight_of_an_unknown_dtype(tmp_path: Path) -> None:
    text = "agraph (float[2] x, float[2] w) => (float[2] y) { y = Add (x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    model.graph.initializer.add(name="w", dims=[2], raw_data=bytes(8), data_type=100)
    data = inspect(tmp_path, model)
    assert not data["lowerable"]


def test_an_attribute_that_is_a_graph(tmp_path: Path) -> None:
    model = single_node_model("GRUBlockCell", valid_inputs("GRUBlockCell"))
    graph = model.graph.node[0].attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g
    graph.name = "inner"
    data = inspect(tmp_path, model)
    assert not data["lowerable"]


def test_an_attribute_that_is_a_tensor_without_a_dtype(tmp_path: Path) -> None:
    model = single_node_model("GRUBlockCell", valid_inputs("GRUBlockCell"))
    model.graph.node[0].attribute.add(name="table", type=onnx.AttributeProto.TENSOR).t.dims.append(2)
    data = inspect(tmp_path, model)
    assert not data["lowerable"]
    assert "TENSOR" in str(data)


def test_a_constant_of_an_unknown_dtype(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> agraph (float[2] x) => (float[2] y) {
        w = Constant <value = float[2] {1, 2}> () y = Add (x, w) }"""
    )
    model.graph.node[0].attribute[0].t.data_type = 100
    data = inspect(tmp_path, model)
    assert not data["lowerable"]
