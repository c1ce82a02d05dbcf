"""Copies of models: equal, apart, at any depth, and of what is malformed too."""

from __future__ import annotations

import onnx_ir as ir
from onnx import parser

from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.structure import nesting, verify_structure
from tests.support.nesting import nested_choices

MODEL = """<ir_version: 9, opset_import: ["": 18, "mine": 1]>
g (float[N] x, bool c) => (float[N] y) <float[1] w = {1}> {
  z = mine.f <k = 1.0> (x)
  y = If (c) <then_branch = a () => (float[N] t) { t = Add(z, w) }, else_branch = b () => (float[N] e) { e = Neg(x) }>
}
<domain: "mine", opset_import: ["": 18]> f <k> (a) => (b) { b = LeakyRelu <alpha: float = @k> (a) }"""


def text(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString(deterministic=True)


def test_a_copy_is_equal_and_apart() -> None:
    model = ir.from_proto(parser.parse_model(MODEL))
    model.metadata_props["note"] = "kept"
    before = text(model)
    copy = copy_model(model)
    assert text(copy) == before
    for graph in copy.graphs():
        for node in graph:
            node.op_type = "Changed"
    copy.graph.inputs[0].name = "other"
    assert text(model) == before


def test_strings_in_a_body_and_as_outputs() -> None:
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (bool c) => (string[2] w, string[1] y) <string[2] w = {"a", "b"}> {
      y = If (c) <then_branch = t () => (string[1] k) <string[1] v = {"c"}> { k = Identity(v) },
                  else_branch = e () => (string[1] d) { z = Constant <value = int64[1] {0}> () d = Gather(w, z) }> }"""
    before = parser.parse_model(text)
    after = ir.to_proto(copy_model(ir.from_proto(before)))
    assert list(after.graph.initializer[0].string_data) == [b"a", b"b"]
    (inner,) = after.graph.node[0].attribute[0].g.initializer
    assert (inner.name, list(inner.string_data)) == ("v", [b"c"])


def test_what_is_undefined_stays_so() -> None:
    model = ir.from_proto(parser.parse_model(MODEL.replace("Neg(x)", "Neg(nothing)")))
    operand = next(node for graph in copy_model(model).graphs() for node in graph if node.op_type == "Neg").inputs[0]
    assert operand is not None
    assert operand.name == "nothing"
    assert operand.producer() is None


def test_deep_nesting() -> None:
    model = nested_choices(2000)
    copy = copy_model(model)
    assert nesting(copy) == 2001
    verify_structure(copy)
