"""Lowers an ONNX model with recurrent training ops, proves the result, and draws what is left of the gradient's loop.

Usage: python examples/lower_model/lower.py [--out DIR]
"""

from __future__ import annotations

import argparse
import collections
from pathlib import Path

import networkx as nx
import numpy as np
import onnx
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import lstm_lower as ll

HERE = Path(__file__).parent
MODEL = HERE.parent / "graphs" / "char_lstm_train.onnx"
COLOURS = {"MatMul": "#e58606", "Gemm": "#e58606"}


def ops(graph: onnx.GraphProto) -> collections.Counter[str]:
    """How often each operator occurs, in loop bodies too."""
    count: collections.Counter[str] = collections.Counter()
    for node in graph.node:
        count[node.op_type] += 1
        for attribute in node.attribute:
            if attribute.HasField("g"):
                count += ops(attribute.g)
    return count


def backward_loop(graph: onnx.GraphProto) -> tuple[onnx.GraphProto, int]:
    """The body of the Scan that walks backwards, and how many states it carries."""
    for node in graph.node:
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == "Scan" and any(attributes.get("scan_input_directions", [])):
            return attributes["body"], len(node.input) - attributes["num_scan_inputs"]
    raise SystemExit("there is no loop that walks backwards")


def layout(graph: nx.DiGraph) -> dict[str, tuple[float, float]]:
    """Places nodes in columns, each next to those that it is connected with."""
    column = {name: index for index, names in enumerate(nx.topological_generations(graph)) for name in names}
    for name in graph:
        if graph.in_degree(name) == 0:
            column[name] = min(column[reader] for reader in graph.successors(name)) - 1
    height = dict.fromkeys(graph, 0.0)
    for _ in range(8):
        for index in range(max(column.values()) + 1):
            names = [name for name in graph if column[name] == index]
            names.sort(key=lambda name: float(np.mean([height[other] for other in nx.all_neighbors(graph, name)])))
            height |= {name: place - (len(names) - 1) / 2 for place, name in enumerate(names)}
    return {name: (column[name], height[name]) for name in graph}


def draw(body: onnx.GraphProto, states: int, axes: Axes) -> None:
    """Draws a loop body from left to right.

    Args:
        body: of a Scan.
        states: how many of its inputs are carried from step to step; the others are slices, one per step.
        axes: where to draw.
    """
    graph = nx.DiGraph()
    labels = {}
    made_by = {}
    for index, value in enumerate(body.input):
        made_by[value.name] = f"input {index}"
        labels[f"input {index}"] = "carried" if index < states else "read"
    for index, node in enumerate(body.node):
        labels[f"node {index}"] = node.op_type
        for name in node.input:
            if name in made_by:
                graph.add_edge(made_by[name], f"node {index}")
        made_by |= dict.fromkeys(node.output, f"node {index}")
    for index, value in enumerate(body.output):
        labels[f"output {index}"] = "carried on" if index < states else "out"
        graph.add_edge(made_by[value.name], f"output {index}")
    places = layout(graph)
    nx.draw_networkx_edges(graph, places, ax=axes, edge_color="#999999", node_size=1100, arrowsize=9)
    for name, (x, y) in places.items():
        colour = COLOURS.get(labels[name], "#9fc5e0") if name.startswith("node") else "#f2f2f2"
        box = {"boxstyle": "round,pad=0.35", "facecolor": colour, "edgecolor": "#555555", "linewidth": 0.6}
        axes.text(x, y, labels[name], ha="center", va="center", fontsize=8, bbox=box)
    axes.set_axis_off()


def main() -> None:
    """Lowers, checks, runs, draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE)
    out = parser.parse_args().out

    model = onnx.load(MODEL)
    print("before:", *(f"{count} {op}" for op, count in sorted(ops(model.graph).items()) if "LSTM" in op))
    lowered = ll.lower(model)
    onnx.checker.check_model(lowered, full_check=True)
    assert {entry.domain for entry in lowered.opset_import} == {""}
    body, states = backward_loop(lowered.graph)
    print(f"after: {sum(ops(lowered.graph).values())} nodes of ai.onnx, {len(body.node)} in the gradient's loop")

    with np.load(MODEL.with_suffix(".npz")) as recorded:
        arrays = dict(recorded)
    results = ll.Session(lowered).run({name[3:]: array for name, array in arrays.items() if name.startswith("in:")})
    worst = max(
        float(np.abs(value - arrays[f"out:{name}"]).max() / np.abs(arrays[f"out:{name}"]).max())
        for name, value in results.items()
    )
    print(f"{len(results)} outputs, largest difference from TensorFlow's: {worst:.1e}")
    assert worst < 1e-5

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    draw(body, states, figure.subplots())
    figure.savefig(out / "loop.svg")


if __name__ == "__main__":
    main()
