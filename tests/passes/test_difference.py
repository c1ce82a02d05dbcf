"""What differs between two models."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.graph import standard as std
from lstm_lower.passes.difference import NamedChange, difference
from lstm_lower.passes.matching import NodeChange, NodeReference

ROOT = Path(__file__).parents[2]
CHARACTERS = ROOT / "examples" / "graphs" / "char_lstm_train.onnx"
LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[2,3,4] sequence, float[3,4] first) => (float[3,4] last, float[2,3,4] made)
<float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>
{
  two = Constant <value = float {2}> ()
  scaled = Mul (sequence, two)
  last, made = Scan <num_scan_inputs = 1, body = step (float[3,4] s, float[3,4] x) => (float[3,4] u, float[3,4] y)
    { t = MatMul(x, w) u = Add(s, t) y = Mul(u, x) }> (first, scaled)
}
"""


def loop(change: Callable[[str], str] = str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(change(LOOP)))


@pytest.mark.parametrize("source", [CHARACTERS, ROOT / "examples/onnx_saliency/digits.onnx"])
def test_a_model_is_the_same_as_itself(source: Path) -> None:
    assert difference(ir.load(source), ir.load(source)).is_empty


def test_lowering_twice_gives_the_same() -> None:
    lowered = [ir.from_proto(ll.lower(CHARACTERS)) for _ in range(2)]
    assert difference(*lowered).is_empty


def test_names_and_order_do_not_count() -> None:
    proto = onnx.load(CHARACTERS)
    kept = {value.name for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer)}
    new = {name: f"v{number}" for number, name in enumerate(o for n in proto.graph.node for o in n.output)}
    for number, node in enumerate(proto.graph.node):
        node.name = f"n{number}"
        node.input[:] = [name if name in kept else new.get(name, name) for name in node.input]
        node.output[:] = [name if name in kept else new[name] for name in node.output]
    del proto.graph.value_info[:]
    nodes = list(proto.graph.node)
    random.Random(0).shuffle(nodes)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    assert difference(ir.load(CHARACTERS), ir.from_proto(proto)).is_empty


@pytest.mark.parametrize(
    ("old", "new", "field", "expected"),
    [
        (
            "float[2,3,4] sequence",
            "float[T,3,4] sequence",
            "inputs",
            [NamedChange("sequence", "f32[2,3,4]", "f32[T,3,4]")],
        ),
        ("float[2,3,4] made", "float[2,B,4] made", "outputs", [NamedChange("made", "f32[2,3,4]", "f32[2,B,4]")]),
        ('"" : 18', '"" : 19', "opsets", [NamedChange("ai.onnx", "18", "19")]),
        ("15,16}", "15,20}", "weights", [NamedChange("w", "f32[4,4]", "1 other values, the largest difference 4")]),
        ("w = {1", "w2 = {1", "weights", [NamedChange("w", "f32[4,4]", None), NamedChange("w2", None, "f32[4,4]")]),
        (
            "{2}", "{3}", "changed",
            [NodeChange("main", "Mul", "scaled", ["input 1: <f32 2.0> -> <f32 3.0>"])],
        ),
        (
            "y = Mul(u, x)", "y = Mul(u, t)", "changed",
            [
                NodeChange("main / Scan 'last' body", "Mul", "y", ["input 1: 'x' -> 't'"]),
            ],
        ),
        (
            "u = Add(s, t)", "u = Sub(s, t)", "changed",
            [NodeChange("main / Scan 'last' body", "Add", "u", ["operator: Add -> Sub"])],
        ),
        (
            "body = step", "scan_input_directions = [1], body = step", "changed",
            [NodeChange("main", "Scan", "last", ["attribute scan_input_directions: none -> [1]"])],
        ),
        (
            "(float[3,4] u, float[3,4] y)\n", "(float[3,4] u, float[3,4] t)\n", "changed",
            [NodeChange("main", "Scan", "last", ["body output 1: 'y' -> 't'"])],
        ),
        ("y = Mul(u, x)", "y = Mul(u, x) z = Abs(y)", "added", [NodeReference("main / Scan 'last' body", "Abs", "z")]),
        ("scaled = Mul (sequence, two)", "scaled = Identity (sequence)", "operators",
         [NamedChange("Mul", "2", "1"), NamedChange("Identity", None, "1")]),
    ],
)  # fmt: skip
def test_each_difference(old: str, new: str, field: str, expected: list[Any]) -> None:
    found = difference(
        loop(), loop(lambda text: text.replace(old, new).replace("x, w)", f"x, {'w2' if 'w2' in new else 'w'})"))
    )
    assert getattr(found, field) == expected
    assert not found.is_empty


def test_what_reads_a_changed_node_is_not_changed() -> None:
    found = difference(loop(), loop(lambda text: text.replace("{2}", "{3}")))
    assert [change.op for change in found.changed] == ["Mul"]
    assert found.added == found.removed == found.operators == []


def test_metadata_and_exchanged_outputs() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    two (float[3] x) => (float[3] a, float[3] b) { a = Abs(x) b = Neg(x) }"""
    first = onnx.parser.parse_model(text)
    second = onnx.parser.parse_model(text.replace("a = Abs(x) b = Neg(x)", "b = Abs(x) a = Neg(x)"))
    second.metadata_props.add(key="made", value="by hand")
    found = difference(ir.from_proto(first), ir.from_proto(second))
    assert found.outputs == [
        NamedChange("a", "made by Abs 'a'", "made by Neg 'a'"),
        NamedChange("b", "made by Neg 'b'", "made by Abs 'b'"),
    ]
    assert found.metadata == [NamedChange("made", None, "by hand")]
    assert found.added == found.removed == found.changed == []


def test_where_gradients_are_stopped() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        held (float[3] x) => (float[3] y) { h = Identity(x) y = Mul(h, x) }"""
    )
    stopped = onnx.ModelProto.FromString(proto.SerializeToString())
    stopped.graph.node[0].metadata_props.add(key=std.STOPPED)
    found = difference(ir.from_proto(proto), ir.from_proto(stopped))
    assert [change.what for change in found.changed] == [["gradient: flows -> stopped"]]
    assert difference(ir.from_proto(stopped), ir.from_proto(stopped)).is_empty


def test_order_of_inputs() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> sum (float x, float y) => (float z) { z = Sub(x, y) }"""
    )
    other = onnx.ModelProto.FromString(proto.SerializeToString())
    other.graph.input.reverse()
    assert difference(ir.from_proto(proto), ir.from_proto(other)).inputs == [NamedChange("(order)", "x, y", "y, x")]


def test_functions() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
    main (float[3] x) => (float[3] y) { y = own.twice(x) }
    <opset_import: ["" : 18], domain: "own"> twice (a) => (b) { b = Add(a, a) }"""
    proto = onnx.parser.parse_model(text)
    assert difference(ir.from_proto(proto), ir.from_proto(proto)).is_empty
    other = onnx.parser.parse_model(text.replace("Add(a, a)", "Mul(a, a)"))
    found = difference(ir.from_proto(proto), ir.from_proto(other))
    assert [change.name for change in found.operators] == ["Add", "Mul"]
    assert [change.what for change in found.changed] == [["operator: Add -> Mul"]]


def test_distances_of_weights() -> None:
    model = ir.load(ROOT / "examples" / "onnx_saliency" / "digits.onnx")
    other = ir.load(ROOT / "examples" / "onnx_saliency" / "digits.onnx")
    name, value = next((n, v) for n, v in other.graph.initializers.items() if v.dtype == ir.DataType.FLOAT)
    array = value.const_value.numpy().copy()
    array.flat[0] = np.nan
    value.const_value = ir.tensor(array, name=name)
    (change,) = difference(model, other).weights
    assert (change.name, change.after) == (name, "1 other values, the largest difference 0")
