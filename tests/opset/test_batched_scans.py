"""Scans of opset 8, which have an axis for the batch, in newer opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lstm_lower as ll
from tests.support.loop_checks import assert_same, run

FLOAT = TensorProto.FLOAT


def _info(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def _scan(body: onnx.GraphProto, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Scan", inputs, outputs, body=body, **attributes)


def _body(name: str = "") -> onnx.GraphProto:
    """Softmax meant another axis in opset 8, and a product of all rows' elements tells rows apart."""
    nodes = [
        helper.make_node("MatMul", ["w", f"{name}s"], [f"{name}p"]),
        helper.make_node("Add", [f"{name}p", f"{name}x"], [f"{name}a"]),
        helper.make_node("Tanh", [f"{name}a"], [f"{name}s2"]),
        helper.make_node("Softmax", [f"{name}a"], [f"{name}y"], axis=0),
        helper.make_node("Identity", [f"{name}z"], [f"{name}v"]),
    ]
    made = [_info(f"{name}{x}", 2, 2) for x in ("s2", "y", "v")]
    return helper.make_graph(nodes, f"{name}step", [_info(f"{name}{x}", 2, 2) for x in ("s", "x", "z")], made)


def _model(batch: int | str, *, nested: bool = False, lengths: bool = False) -> onnx.ModelProto:
    scan = _scan(
        _body(),
        ["lengths" if lengths else "", "first", "xs", "zs"],
        ["last", "ys", "vs"],
        num_scan_inputs=2,
        directions=[0, 1],
    )
    fed = {"first": (batch, 2, 2), "xs": (batch, 4, 2, 2), "zs": (batch, 4, 2, 2)}
    made = {"last": (batch, 2, 2), "ys": (batch, 4, 2, 2), "vs": (batch, 4, 2, 2)}
    inputs = [_info("w", 2, 2), *(_info(name, *shape) for name, shape in fed.items())]
    if lengths:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT64, (batch,)))
    outputs = [_info(name, *shape) for name, shape in made.items()]
    # What is read beside the Scan too, and keeps its rank there.
    nodes = [scan, helper.make_node("Softmax", ["xs"], ["soft"]), helper.make_node("Softmax", ["ys"], ["softer"])]
    beside = [_info("soft", *fed["xs"]), _info("softer", *made["ys"])]
    if nested:
        branch = helper.make_graph(nodes, "then", [], [*outputs, *beside])
        other = [
            helper.make_node("Add", [a, a], [f"{b}2"])
            for a, b in (("first", "last"), ("xs", "ys"), ("zs", "vs"), ("xs", "soft"), ("xs", "softer"))
        ]
        names = [f"{x.name}2" for x in (*outputs, *beside)]
        otherwise = helper.make_graph(
            other, "else", [], [_info(name, *(fed["first"] if name == "last2" else fed["xs"])) for name in names]
        )
        results = [x.name for x in (*outputs, *beside)]
        for x in branch.output:
            x.name = f"{x.name}_in"
        for node in branch.node:
            node.input[:] = [f"{x}_in" if x == "ys" else x for x in node.input]
            node.output[:] = [f"{x}_in" for x in node.output]
        nodes = [helper.make_node("If", ["choice"], results, then_branch=branch, else_branch=otherwise)]
        inputs.append(helper.make_tensor_value_info("choice", TensorProto.BOOL, ()))
    graph = helper.make_graph(nodes, "batched", inputs, [*outputs, *beside])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)


def _feeds(batch: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"w": (2, 2), "first": (batch, 2, 2), "xs": (batch, 4, 2, 2), "zs": (batch, 4, 2, 2)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {**feeds, "choice": np.ones((), np.bool_)}


@pytest.mark.parametrize("nested", [False, True], ids=["", "in_a_branch"])
@pytest.mark.parametrize("declared", [3, 1, "B"])
@pytest.mark.parametrize("convert", [ll.lower, ll.optimize], ids=["lower", "optimize"])
def test_a_batch_stays_a_batch(convert: Any, declared: int | str, nested: bool) -> None:
    model = _model(declared, nested=nested)
    onnx.checker.check_model(model, full_check=True)
    feeds = _feeds(3 if declared == "B" else int(declared))
    after = convert(model)
    onnx.checker.check_model(after, full_check=True)
    assert [x.type for x in after.graph.input] == [x.type for x in model.graph.input]
    for optimised in (False, True):
        assert_same(run(model, feeds, optimised=optimised), run(after, feeds, optimised=optimised))


def test_several_lengths_are_refused() -> None:
    with pytest.raises(ll.UnsupportedOpError, match=r"sequence_lens requires no operand.*got 'lengths'"):
        ll.lower(_model(3, lengths=True))
