"""The states of a graph, pass by pass."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.history import GraphState, NodeState, PassHistory
from lstm_lower.passes.pipeline import optimizing_passes
from lstm_lower.passes.trace import Trace

LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[2,3,4] sequence, float[3,4] first, float[4,4] w) => (float[3,4] last, float[2,3,4] made)
{
  last, made = Scan <num_scan_inputs = 1, body = step (float[3,4] s, float[3,4] x) => (float[3,4] u, float[3,4] y)
    { t = MatMul(x, w) u = Add(s, t) y = Mul(u, x) }> (first, sequence)
}
"""


def recorded() -> tuple[PassHistory, ir.Model]:
    history = PassHistory()
    steps = [history.begin(), *optimizing_passes(trace=Trace(watch=history.record))]
    return history, run_passes(ir.from_proto(onnx.parser.parse_model(LOOP)), steps)


def test_first_state_is_the_graph() -> None:
    history, _ = recorded()
    first = history.steps[0]
    scan, *body = first.nodes
    assert [node.op for node in first.nodes] == ["Scan", "MatMul", "Add", "Mul"]
    assert [graph.owner for graph in first.graphs] == [None, scan.number]
    assert {node.graph for node in body} == {first.graphs[1].number}
    assert [node.sources for node in first.nodes] == [(0,), (1,), (2,), (3,)]
    assert dict(scan.attributes) == {"num_scan_inputs": "1"}
    assert first.graphs[1].role == "body"
    names = [history.values[number].name for number in first.graphs[0].inputs]
    assert names == ["sequence", "first", "w"]
    assert history.values[first.graphs[0].inputs[0]].type == "f32[2,3,4]"


def test_steps_lead_to_the_last_state() -> None:
    history, result = recorded()
    nodes: dict[int, NodeState] = {}
    graphs: dict[int, GraphState] = {}
    for step in history.steps:
        new = [node for node in step.nodes if node.number not in nodes]
        assert len(new) == step.added
        assert set(step.gone) <= set(nodes)
        nodes = {number: node for number, node in nodes.items() if number not in step.gone}
        nodes |= {node.number: node for node in step.nodes}
        graphs |= {graph.number: graph for graph in step.graphs}
        assert len(nodes) == step.count
    assert sorted(node.op for node in nodes.values()) == sorted(node.op_type for node in all_nodes(result.graph))
    assert "loop-invariant-code-motion" in [step.pass_name for step in history.steps]
    read = {number for node in nodes.values() for number in node.inputs if number is not None}
    made = {number for node in nodes.values() for number in node.outputs}
    given = {number for graph in graphs.values() for number in graph.inputs}
    assert read <= made | given


def test_nothing_is_recorded_before_it_begins() -> None:
    history = PassHistory()
    run_passes(ir.from_proto(onnx.parser.parse_model(LOOP)), optimizing_passes(trace=Trace(watch=history.record)))
    assert history.steps == []
