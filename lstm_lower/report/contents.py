"""The contents of a report as JSON, which the page draws: docs/report.md describes them."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import lstm_lower
from lstm_lower.passes.base import Pass
from lstm_lower.passes.history import GraphState, NodeState, Step
from lstm_lower.records import certificate
from lstm_lower.report import interface, operators
from lstm_lower.report.analysis import Analysis
from lstm_lower.report.origins import origins
from lstm_lower.runtime.node_times import by_loop, by_op
from lstm_lower.runtime.proof.comparison import AGREE

VERSION = 1


def contents(analysis: Analysis, name: str, lowered_file: str) -> dict[str, Any]:
    """Everything that a page shows.

    Args:
        analysis: of the model.
        name: what the model is called.
        lowered_file: what the lowered model is called in the program to paste.
    """
    history = analysis.history
    nodes = [node for step in history.steps for node in step.nodes]
    parts = origins(history.steps[0])
    inputs, outputs = interface.ports(analysis.lowered)
    compared = certificate.parse(analysis.source.metadata_props)
    return {
        "version": VERSION,
        "by": f"lstm-lower {lstm_lower.__version__}",
        "name": name,
        "before": dataclasses.asdict(analysis.before),
        "after": dataclasses.asdict(analysis.after),
        "parts": parts.parts,
        "part_of": {str(number): place for number, place in parts.part_of.items()},
        "steps": [_step(step) for step in history.steps],
        "values": [[value.name, value.type, value.constant] for _, value in sorted(history.values.items())],
        "operators": operators.describe([(node.domain, node.op) for node in nodes], analysis.after.opset),
        "passes": _pass_texts({step.pass_name for step in history.steps}),
        "refusals": [[refusal.pass_name, refusal.where, refusal.reason] for refusal in analysis.trace.refusals],
        "notes": analysis.trace.notes,
        "check": _check(analysis),
        "certificate": None if compared is None else compared.described(),
        "times": _times(analysis),
        "inputs": inputs,
        "outputs": outputs,
        "program": interface.program(analysis.lowered, lowered_file),
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "pass": step.pass_name,
        "round": step.round,
        "nodes": [_node(node) for node in step.nodes],
        "graphs": [_graph(graph) for graph in step.graphs],
        "gone": step.gone,
        "added": step.added,
        "count": step.count,
    }


def _node(node: NodeState) -> list[Any]:
    # A list, since a page holds thousands of them.
    attributes = dict(node.attributes)
    operator = operators.key(node.domain, node.op)
    told = [node.number, node.graph, operator, node.name, node.inputs, node.outputs, attributes, node.sources]
    return [*told, node.scope] if node.scope else told


def _graph(graph: GraphState) -> list[Any]:
    return [graph.number, graph.owner, graph.role, graph.inputs, graph.outputs]


def _pass_texts(names: set[str]) -> dict[str, str]:
    """Name of a pass -> the first line that its class says of itself."""
    found: dict[str, str] = {}
    waiting = Pass.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.name in names:
            found[kind.name] = (inspect.getdoc(kind) or "").split("\n", 1)[0]
    return dict(sorted(found.items()))


def _times(analysis: Analysis) -> dict[str, Any] | None:
    """Times by node, operator and loop; nodes that onnxruntime made itself, by fusion, have no number."""
    if analysis.times is None:
        return None
    numbers = {node.name: node.number for step in analysis.history.steps for node in step.nodes}
    rows = sorted(analysis.times, key=lambda time: (-time.seconds, time.place, time.name))
    return {
        "nodes": [
            {
                "number": numbers.get(time.name),
                "name": time.name,
                "op": time.op,
                "place": time.place,
                "seconds": time.seconds,
                "calls": time.calls,
                "bodies": time.holds_bodies,
            }
            for time in rows
        ],
        "ops": [[time.op, time.calls, time.seconds] for time in by_op(analysis.times)],
        "loops": [[time.place, time.iterations, time.calls, time.seconds] for time in by_loop(analysis.times)],
    }


def _check(analysis: Analysis) -> dict[str, Any] | None:
    report = analysis.check
    if report is None:
        return None
    outputs = [{**dataclasses.asdict(row), "agrees": row.verdict in AGREE} for row in report.outputs]
    return {"passed": report.passed, "verdict": report.verdict, **dataclasses.asdict(report), "outputs": outputs}
