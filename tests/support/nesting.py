"""Graphs in graphs in graphs."""

from __future__ import annotations

import onnx_ir as ir


def value(name: str, dtype: ir.DataType = ir.DataType.FLOAT, shape: tuple[int, ...] = (2,)) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def nested_choices(levels: int) -> ir.Model:
    """Ifs one in another: `y = -x` where all conditions hold, else `x`."""
    x, condition = value("x"), value("c", ir.DataType.BOOL, ())
    nodes = [ir.Node("", "Neg", [x], outputs=[value("y0")], name="negated")]
    for level in range(1, levels + 1):
        then = ir.Graph([], [nodes[-1].outputs[0]], nodes=nodes, name=f"then{level}")
        same = ir.Node("", "Identity", [x], outputs=[value(f"e{level}")], name=f"same{level}")
        otherwise = ir.Graph([], [same.outputs[0]], nodes=[same], name=f"else{level}")
        branches = [ir.AttrGraph("then_branch", then), ir.AttrGraph("else_branch", otherwise)]
        nodes = [ir.Node("", "If", [condition], branches, outputs=[value(f"y{level}")], name=f"choice{level}")]
    graph = ir.Graph([x, condition], nodes[-1].outputs, nodes=nodes, opset_imports={"": 18}, name="main")
    return ir.Model(graph, ir_version=9)
