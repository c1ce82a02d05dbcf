"""Ops of another package: modules of them, and models that hold them in every place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from lstm_lower.opdef import REGISTRY
from lstm_lower.passes.rules.registry import RULES
from lstm_lower.runtime.proof.oracles.finite_differences import PAIRINGS
from lstm_lower.runtime.proof.oracles.registry import ORACLES

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin_op"
LEAKY = EXAMPLE / "leaky_integrator.py"

# A module with an op, its rule and its oracle.
DOUBLING = """
from lstm_lower.extend import OpDef, lowers, operand, oracle

class {op}(OpDef):
    domain = "{domain}"
    class Inputs:
        x = operand("*S")
    class Outputs:
        y = operand("*S")

@lowers({op})
def rule(n, b):
    return n.x * {factor}

@oracle({op})
def meaning(*, x):
    return {{"y": {factor} * x}}
"""


def doubling(path: Path, op: str = "Doubling", domain: str = "com.example", factor: float = 2.0) -> Path:
    """Writes a module with one op."""
    path.write_text(DOUBLING.format(op=op, domain=domain, factor=factor))
    return path


@pytest.fixture
def own_registry() -> Iterator[None]:
    """Forgets after a test what it registered."""
    registries = (REGISTRY, RULES, ORACLES, PAIRINGS)
    kept = [(len(registry), dict(registry._entries), dict(registry._modules)) for registry in registries]
    yield
    for registry, (_, entries, modules) in zip(registries, kept, strict=True):
        registry._entries, registry._modules = entries, modules


def float_info(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def leaky_node(x: str = "x", y: str = "y", **attributes: object) -> onnx.NodeProto:
    return helper.make_node("LeakyIntegrator", [x, "w"], [y], "leaky", domain="com.example", **attributes)


def leaky_model(where: str = "main", opset: int = 18, version: int = 1) -> onnx.ModelProto:
    """A model with a LeakyIntegrator in the main graph, a branch, the body of a Loop or Scan, or a function."""
    functions = []
    first: list[onnx.TensorProto] = []
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.example", version)]
    x, w, y = float_info("x", "T", "B", 3), float_info("w", 3, 3), float_info("y", "T", "B", 3)
    if where == "main":
        nodes = [leaky_node()]
    elif where == "branch":
        branches = [helper.make_graph([leaky_node(y="b", decay=d)], f"branch{d}", [], [y]) for d in (0.5, 0.25)]
        for branch in branches:
            branch.output[0].name = "b"
        nodes = [
            helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
            helper.make_node("Cast", ["largest"], ["condition"], to=TensorProto.BOOL),
            helper.make_node("If", ["condition"], ["y"], "choice", then_branch=branches[0], else_branch=branches[1]),
        ]
    elif where == "loop":
        body = helper.make_graph(
            [leaky_node("s", "u"), helper.make_node("Identity", ["go"], ["on"])],
            "body",
            [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                float_info("s", "T", "B", 3),
            ],
            [helper.make_tensor_value_info("on", TensorProto.BOOL, []), float_info("u", "T", "B", 3)],
        )
        first = [helper.make_tensor("trips", TensorProto.INT64, [], [3])]
        nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], "loop", body=body)]
    elif where == "scan":
        body = helper.make_graph(
            [
                helper.make_node("Unsqueeze", ["e", "zero"], ["e1"]),
                leaky_node("e1", "l"),
                helper.make_node("Squeeze", ["l", "zero"], ["l0"]),
                helper.make_node("Add", ["s", "l0"], ["u"]),
                helper.make_node("Identity", ["u"], ["o"]),
            ],
            "body",
            [float_info("s", "B", 3), float_info("e", "B", 3)],
            [float_info("u", "B", 3), float_info("o", "B", 3)],
        )
        first = [helper.make_tensor("zero", TensorProto.INT64, [1], [0])]
        nodes = [
            helper.make_node("Gather", ["x", "zero"], ["x0"]),
            helper.make_node("Squeeze", ["x0", "zero"], ["start"]),
            helper.make_node("Scan", ["start", "x"], ["last", "y"], "scan", body=body, num_scan_inputs=1),
        ]
    else:
        inner = [leaky_node("a", "b"), helper.make_node("Neg", ["b"], ["c"])]
        inner[0].attribute.add(name="decay", ref_attr_name="decay", type=onnx.AttributeProto.FLOAT)
        functions = [helper.make_function("local", "Twice", ["a", "w"], ["c"], inner, opsets, ["decay"])]
        opsets.append(helper.make_opsetid("local", 1))
        nodes = [helper.make_node("Twice", ["x", "w"], ["y"], "call", domain="local", decay=0.3)]
    graph = helper.make_graph(nodes, "g", [x, w], [y], first)
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)
