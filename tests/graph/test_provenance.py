"""Which nodes of a source the nodes of a changed model stand for."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace, replace
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.history import PassHistory
from lstm_lower.passes.lower import lowering_passes

ROOT = Path(__file__).parents[2]
CHAIN = """
<ir_version: 8, opset_import: ["" : 18]>
chain (float[3] x) => (float[3] y) { a = Relu(x) b = Neg(a) c = Neg(a) y = Add(b, c) }
"""


def chain() -> tuple[ir.Model, list[ir.Node]]:
    model = ir.from_proto(onnx.parser.parse_model(CHAIN))
    return model, provenance.mark(model)


def test_marked_nodes_stand_for_themselves() -> None:
    model, nodes = chain()
    assert [provenance.sources(node) for node in nodes] == [(0,), (1,), (2,), (3,)]
    assert [node.op_type for node in nodes] == [node.op_type for node in model.graph]


def test_what_is_emitted_stands_for_what_it_is_emitted_at() -> None:
    model, nodes = chain()
    e = Builder(Workspace.of(model), model.graph, before=nodes[1])
    made = e.op(std.Abs, nodes[0].outputs[0])
    assert provenance.sources(made.producer()) == (1,)
    e.go_before(nodes[3], "there")
    assert provenance.sources(e.op(std.Abs, made).producer()) == (3,)


def test_a_copy_stands_for_what_it_is_a_copy_of() -> None:
    model, nodes = chain()
    e = Builder(Workspace.of(model), model.graph, before=nodes[3])
    assert provenance.sources(e.again(nodes[1], nodes[1].inputs)) == (1,)
    assert provenance.sources(e.repeat(nodes[2], nodes[2].inputs)[0].producer()) == (2,)


def test_what_replaces_a_value_stands_for_its_maker_too() -> None:
    model, nodes = chain()
    replace(nodes[2].outputs[0], nodes[1].outputs[0], Workspace.of(model))
    assert provenance.sources(nodes[1]) == (1, 2)


def test_nothing_is_recorded_unasked() -> None:
    model = ir.from_proto(onnx.parser.parse_model(CHAIN))
    e = Builder(Workspace.of(model), model.graph)
    made = e.op(std.Abs, model.graph.inputs[0])
    assert provenance.sources(made.producer()) == ()
    assert not any(node.meta for node in model.graph)


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("char_lstm_train", "auto"),
        ("char_lstm_train", "chunk:4"),
        ("char_lstm_train", "unroll"),
        ("input_saliency", "auto"),
    ],
)
def test_every_lowered_node_stands_for_something(name: str, schedule: str) -> None:
    model = ir.load(ROOT / "examples" / "graphs" / f"{name}.onnx")
    count = sum(1 for _ in all_nodes(model.graph))
    lowered = run_passes(model, [PassHistory().begin(), *lowering_passes(schedule=schedule)])
    nodes = [node for node in all_nodes(lowered.graph) if not std.Constant.matches(node)]
    stand_for = [provenance.sources(node) for node in nodes]
    assert all(stand_for)
    assert {number for found in stand_for for number in found} <= set(range(count))
