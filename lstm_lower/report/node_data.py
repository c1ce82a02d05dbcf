"""Times and errors of a lowered model's nodes as Model Explorer shows them over a graph.

Its custom node data are a JSON object, graph id -> `results`, which hold a value per node, and `gradient`, the colours
from the smallest value to the largest. Ids are those of its ONNX adapter (model-explorer-onnx): a graph's name, a
node's name, for a loop's body `<node>/<attribute>`, for a graph's output `[value] <name>`. It draws the nodes of an
If's branches in the graph around it, as `<If>/<attribute>/<node>`, and does not draw loops within loops.
https://github.com/google-ai-edge/model-explorer/wiki/2.-User-Guide#custom-node-data
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TypedDict

import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.graph.form import node_label
from lstm_lower.passes.digests import graphs_by_name
from lstm_lower.report.analysis import Analysis


class NodeResult(TypedDict):
    """The label of a node."""

    value: float


class Colour(TypedDict):
    """A colour of the gradient, from 0, the smallest value, to 1."""

    stop: float
    bgColor: str


class GraphData(TypedDict):
    """The values of one graph's nodes."""

    results: dict[str, NodeResult]
    gradient: list[Colour]


_GRADIENT = [Colour(stop=0, bgColor="#ffffff"), Colour(stop=1, bgColor="#f28b82")]


def times(analysis: Analysis) -> dict[str, GraphData]:
    """Milliseconds of each node in a run; onnxruntime tells nothing of nodes that it fused with others.

    Raises:
        InvalidInputError: the model was not run.
    """
    if analysis.times is None:
        raise InvalidInputError("node data require times, got a model that was not run")
    seconds = {(time.place, time.name): time.seconds for time in analysis.times}
    found: dict[str, dict[str, NodeResult]] = collections.defaultdict(dict)
    for graph_id, key, place, node in _nodes(analysis.lowered.graph):
        if (taken := seconds.get((place, node_label(node)))) is not None:
            found[graph_id][key] = NodeResult(value=round(1e3 * taken, 4))
    return {graph_id: GraphData(results=results, gradient=_GRADIENT) for graph_id, results in found.items()}


def errors(analysis: Analysis) -> dict[str, GraphData]:
    """Errors of the outputs relative to their largest magnitudes, on the outputs and on the nodes that make them.

    Raises:
        InvalidInputError: the model was not run.
    """
    if analysis.check is None:
        raise InvalidInputError("node data require errors, got a model that was not run")
    graph = analysis.lowered.graph
    keys = {node: key for _, key, place, node in _nodes(graph) if not place}
    rows = {row.name: float(f"{max(row.relative.values()):.3g}") for row in analysis.check.outputs if row.relative}
    results: dict[str, NodeResult] = {}
    for value in graph.outputs:
        name, node = value.name or "", value.producer()
        if name not in rows:
            continue
        results[f"[value] {name}"] = NodeResult(value=rows[name])
        if node is not None:
            results[keys[node]] = NodeResult(
                value=max(rows[name], results.get(keys[node], NodeResult(value=0.0))["value"])
            )
    return {str(graph.name): GraphData(results=results, gradient=_GRADIENT)}


def _nodes(graph: ir.Graph) -> Iterator[tuple[str, str, tuple[str, ...], ir.Node]]:
    """Every node, its graph's id and its own, and the nodes around it."""
    waiting: list[tuple[ir.Graph, str, str, tuple[str, ...]]] = [(graph, str(graph.name), "", ())]
    while waiting:
        inside, graph_id, prefix, place = waiting.pop(0)
        for node in inside:
            key = prefix + node_label(node)
            yield graph_id, key, place, node
            for name, body in graphs_by_name(node).items():
                around = (*place, node_label(node))
                if std.If.matches(node):
                    waiting.append((body, graph_id, f"{key}/{name}/", around))
                else:
                    waiting.append((body, f"{key}/{name}", "", around))
