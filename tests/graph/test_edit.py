"""Editing nodes of thousands of operands."""

from __future__ import annotations

import time

import onnx.parser
import onnx_ir as ir
from onnx import TensorProto, helper

import lstm_lower as ll
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.edit import detach, redirect


def concats(count: int, operands: int) -> ir.Model:
    """Equal Concats of as many operands, summed."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2 * operands])
    nodes = [helper.make_node("Concat", ["x"] * operands, [f"c{index}"], axis=0) for index in range(count)]
    nodes.append(helper.make_node("Sum", [f"c{index}" for index in range(count)], ["y"]))
    graph = helper.make_graph(nodes, "g", [x], [y])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def test_readers_are_kept_up_to_date() -> None:
    graph = concats(2, 3).graph
    x, first, total = graph.inputs[0], graph[0], graph[2]
    redirect(first.outputs[0], x)
    assert list(total.inputs) == [x, graph[1].outputs[0]]
    assert not first.outputs[0].uses()
    detach(first)
    assert sorted((use.node.op_type, use.idx) for use in x.uses()) == [
        ("Concat", 0),
        ("Concat", 1),
        ("Concat", 2),
        ("Sum", 0),
    ]


def test_time_is_linear_in_the_number_of_operands() -> None:
    start = time.process_time()
    ll.optimize(concats(20, 10_000))
    assert time.process_time() - start < 30


def test_results_of_new_nodes_take_no_name_that_is_taken() -> None:
    """A model that a pass made may have such names, of a node that is gone."""
    model = ir.from_proto(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[4] "s/Split:0") => (float[2] a, float[2] b)
        { "s/Split_1:1" = Neg ("s/Split:0") a, b = Split <num_outputs = 2> ("s/Split_1:1") }""")
    )
    e = Builder(Workspace.of(model), model.graph, scope="s")
    split = next(node for node in model.graph if node.op_type == "Split")
    e.node(std.Split, split.inputs, 2, num_outputs=2)
    e.repeat(split, split.inputs)
    names = [value.name for node in model.graph for value in node.outputs]
    assert len({*names, "s/Split:0"}) == len(names) + 1
