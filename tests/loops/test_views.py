"""Views of loops look at a model and leave it as it is."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.views.loop import Loop, scans_of
from lstm_lower.passes.loops.views.rows import element_of
from lstm_lower.passes.model_pass import Context
from lstm_lower.passes.trace import Trace

NAMELESS = """<ir_version: 8, opset_import: ["" : 18]>
loops (float[3] first, float[T,3] xs) => (float[3] last)
{
  last = Scan <num_scan_inputs = 1, body = step (float[3] s, float[3] x) => (float[3] s2) { s2 = Add(s, x) }>
    (first, xs)
}"""


def test_a_view_names_nothing() -> None:
    model = ir.from_proto(onnx.parser.parse_model(NAMELESS))
    before = ir.to_proto(model).SerializeToString()
    (node,) = scans_of(model.graph)
    Loop(node, Context(model).space)
    assert ir.to_proto(model).SerializeToString() == before


def test_a_loop_without_a_name_is_called_by_its_output() -> None:
    trace = Trace()
    text = NAMELESS.replace("s2 = Add(s, x)", "t = Tanh(s) s2 = Add(t, x)")
    ll.optimize(onnx.parser.parse_model(text), "unroll", trace=trace)
    assert any(refusal.where == "Scan 'last'" for refusal in trace.refusals)


def test_a_loop_that_makes_nothing_is_gone() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
loops (float[T,3] xs, float[3] k) => (float[3] y)
{
  a, b = Scan <num_scan_inputs = 1, body = step (float[3] x) => (float[3] v, float[3] v) { v = Identity(k) }> (xs)
  y = Tanh(k)
}"""
    after = ll.optimize(onnx.parser.parse_model(text), verify_each=True)
    assert [node.op_type for node in after.graph.node] == ["Tanh"]


@pytest.mark.parametrize("start", range(-3, 3))
@pytest.mark.parametrize("end", range(-3, 4))
def test_a_slice_that_is_an_element_holds_it(start: int, end: int) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]> s (float[3] x) => (float[?] y)
      <int64[1] start = {{{start}}}, int64[1] end = {{{end}}}> {{ y = Slice(x, start, end) }}"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    element = element_of(model.graph.outputs[0], Facts.of(model))
    found = [] if element is None else [element.start]
    wanted = np.arange(3)[start:end].tolist()
    assert found == (wanted if (start < 0) == (end < 0) and end - start == 1 else [])
