"""`python -m benchmarks gradient`: how long `ll.gradient` itself takes, on networks of many layers."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated

import numpy as np
import onnx
import typer
from onnx import helper, numpy_helper

import lstm_lower as ll
from benchmarks.options import JsonOption, OutputOption, hand_out
from lstm_lower.cli import console

SIZES = (1_000, 10_000)
UNITS = 8


@dataclasses.dataclass(frozen=True)
class Figures:
    """What one network took.

    Attributes:
        nodes: before.
        nodes_after: with the gradients.
        weights: that gradients are computed of.
        seconds: the fastest of the runs.
    """

    nodes: int
    nodes_after: int
    weights: int
    seconds: float


def network(nodes: int) -> onnx.ModelProto:
    """Layers with a tanh and a connection around each: four nodes a layer, two weights."""
    random = np.random.default_rng(0)
    weights, body, last = {}, [], "x"
    for layer in range(nodes // 4):
        weights[f"w{layer}"] = random.standard_normal((UNITS, UNITS), np.float32) * np.float32(0.3)
        weights[f"b{layer}"] = np.zeros(UNITS, np.float32)
        product, total, active, result = (f"{name}{layer}" for name in ("product", "total", "active", "result"))
        body += [
            helper.make_node("MatMul", [last, f"w{layer}"], [product]),
            helper.make_node("Add", [product, f"b{layer}"], [total]),
            helper.make_node("Tanh", [total], [active]),
            helper.make_node("Add", [active, last], [result]),
        ]
        last = result
    body.append(helper.make_node("ReduceMean", [last], ["loss"], keepdims=0))
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["B", UNITS])
    loss = helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [])
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(body, "network", [x], [loss], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def measured(nodes: int, runs: int) -> Figures:
    """Times the gradient of one network."""
    model = network(nodes)
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        result = ll.gradient(model)
        seconds.append(time.perf_counter() - start)
    return Figures(len(model.graph.node), len(result.graph.node), len(model.graph.initializer), min(seconds))


def gradient(
    nodes: Annotated[list[int] | None, typer.Option("--nodes", min=4, help="May be repeated.")] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Of which the fastest counts.")] = 3,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time `ll.gradient` by all weights, on networks of 1,000 and 10,000 nodes."""
    with console.errors(as_json=as_json):
        found = [measured(count, runs) for count in nodes or SIZES]
        if not as_json:
            titles = ["nodes after", "weights", "seconds"]
            rows = [[str(f.nodes), str(f.nodes_after), str(f.weights), f"{f.seconds:.2f}"] for f in found]
            console.table("nodes", *titles, rows=rows, right=["nodes", *titles])
        hand_out([dataclasses.asdict(figures) for figures in found], output, as_json=as_json)
