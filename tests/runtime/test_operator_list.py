"""Lists of the operators that a bundle needs, as the tools of onnxruntime's builds read them."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidModelError
from lstm_lower.runtime.training.operator_list import NAME, operator_list
from tests.support.bundles import classifier
from tests.support.command_line import succeed

# Of which onnxruntime makes one of its own operators.
CONVOLUTION = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[B,1,5,5] x, float[2,1,3,3] w) => (float[B,2,3,3] y, int64[N] h)
{ c = Conv(x, w)  y = Relu(c)  s = Shape(y)  h = Add(s, s) }
"""


def _parsed(path: Path) -> tuple[dict[str, dict[int, set[str]]], list[str]]:
    """Operators, and the types for the build's sources."""
    from onnxruntime.tools.reduced_build_config_parser import parse_config

    operators, types = parse_config(str(path), enable_type_reduction=True)
    return operators, types.get_cpp_entries()


def _names(graph: Any) -> set[str]:
    inner = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return {node.op_type for node in graph.node}.union(*map(_names, inner))


def test_the_builds_tool_reads_what_all_models_need(tmp_path: Path) -> None:
    search, handlers = list(sys.path), list(logging.getLogger().handlers)
    ll.export_training(classifier(), tmp_path, operators=True)
    assert (sys.path, logging.getLogger().handlers) == (search, handlers)
    operators, types = _parsed(tmp_path / NAME)
    listed = set().union(*operators["ai.onnx"].values())
    for path in tmp_path.glob("*.onnx"):
        assert _names(onnx.load(path).graph) - {"Constant"} <= listed
    assert max(operators["ai.onnx"]) <= 24
    assert any("MatMul" in line and "float" in line for line in types)
    assert str(tmp_path) not in (tmp_path / NAME).read_text()
    assert NAME not in json.loads((tmp_path / "training.json").read_text())["hashes"]
    # It is of these models: those of another bundle need others.
    ll.export_training(classifier(), tmp_path)
    assert not (tmp_path / NAME).exists()


def test_operators_that_onnxruntime_makes_are_listed(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(CONVOLUTION), tmp_path / "net.onnx")
    (tmp_path / NAME).write_text(operator_list([tmp_path / "net.onnx"]))
    operators, types = _parsed(tmp_path / NAME)
    assert operators["com.microsoft"] == {1: {"FusedConv"}}
    assert {"Conv", "Relu"} <= set().union(*operators["ai.onnx"].values())
    assert "ORT_SPECIFY_OP_KERNEL_ARG_ALLOWED_TYPES(kOnnxDomain, Add, Input, 0, int64_t);" in types


def test_a_model_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no model")
    with pytest.raises(InvalidModelError, match=r"in its own format, got net\.onnx: "):
        operator_list([tmp_path / "net.onnx"])


@pytest.mark.slow
def test_on_the_command_line(tmp_path: Path) -> None:
    onnx.save(classifier(), tmp_path / "step.onnx")
    told = json.loads(succeed("export", tmp_path / "step.onnx", "-o", tmp_path / "b", "--ops", "--json"))
    assert told["files"][-1] == NAME
    site = ("-o", tmp_path / "site", "--ops", "--page", "--files", "init,train", "--json")
    assert f"bundle/{NAME}" in json.loads(succeed("export", tmp_path / "step.onnx", *site))["files"]
    assert (tmp_path / "site" / "bundle" / NAME).exists()
