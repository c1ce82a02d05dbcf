"""Times and errors of a lowered model's nodes as Model Explorer shows them over a graph.

Its custom node data are a JSON object, graph id -> `results`, which hold a value per node, and `gradient`, the colours
from the smallest value to the largest. Ids are those of its ONNX adapter (model-explorer-onnx): a graph's name, a
node's name, for a body `<node>/<attribute>`, for a graph's output `[value] <name>`.
https://github.com/google-ai-edge/model-explorer/wiki/2.-User-Guide#custom-node-data
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.form import node_label
from lstm_lower.passes.digests import graphs_by_name
from lstm_lower.report.analysis import Analysis


class Result(TypedDict):
    """What is shown on a node."""

    value: float


class Colour(TypedDict):
    """A colour of the gradient, from 0, the smallest value, to 1."""

    stop: float
    bgColor: str


class GraphData(TypedDict):
    """The values of one graph's nodes."""

    results: dict[str, Result]
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
    found: dict[str, GraphData] = {}
    for graph_id, place, nodes in _graphs(analysis.lowered.graph, analysis.lowered.graph.name or "<main>", ()):
        known = {key: seconds[place, node_label(node)] for key, node in nodes if (place, node_label(node)) in seconds}
        found[graph_id] = GraphData(
            results={key: Result(value=1e3 * value) for key, value in known.items()}, gradient=_GRADIENT
        )
    return found


def errors(analysis: Analysis) -> dict[str, GraphData]:
    """Errors of the outputs relative to their largest magnitudes, on the outputs and on the nodes that make them.

    Raises:
        InvalidInputError: the model was not run.
    """
    if analysis.check is None:
        raise InvalidInputError("node data require errors, got a model that was not run")
    graph = analysis.lowered.graph
    keys = {node: key for _, place, nodes in _graphs(graph, "", ()) if not place for key, node in nodes}
    rows = {row.name: max(row.relative.values()) for row in analysis.check.outputs if row.relative}
    results: dict[str, Result] = {}
    for value in graph.outputs:
        name, node = value.name or "", value.producer()
        if name not in rows:
            continue
        results[f"[value] {name}"] = Result(value=rows[name])
        if node is not None:
            results[keys[node]] = Result(value=max(rows[name], results.get(keys[node], Result(value=0.0))["value"]))
    return {graph.name or "<main>": GraphData(results=results, gradient=_GRADIENT)}


def _graphs(
    graph: ir.Graph, graph_id: str, place: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ir.Node]]]]:
    """A graph and the bodies in it: id, the nodes around it, and its nodes with their ids."""
    yield graph_id, place, [(node.name or f"<node_{index}>", node) for index, node in enumerate(graph)]
    for index, node in enumerate(graph):
        for name, body in graphs_by_name(node).items():
            yield from _graphs(body, f"{node.name or f'<node_{index}>'}/{name}", (*place, node_label(node)))
