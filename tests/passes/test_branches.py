"""Ifs of known conditions give way to the branch that runs."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import parser

import lstm_lower as ll
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.branches import ConstantBranchPass

# A branch with a constant of its own and one that only hands on what stands outside; the same value given twice.
NESTED = """<ir_version: 8, opset_import: ["": 17, "mine": 1]>
g (float[2] x, bool open) => (float[2] y, float[2] z, float[2] w)
<bool yes = {{1}}, bool no = {{{no}}}> {{
  y, z = If (yes) <
    then_branch = a () => (float[2] t, float[2] s) <float[2] one = {{1, 1}}> {{
      r = If (no) <then_branch = b () => (float[2] u) {{ u = mine.f (x) }},
                   else_branch = c () => (float[2] v) {{ v = Identity (x) }}>
      s = Add (r, one)
      t = Neg (s) }},
    else_branch = d () => (float[2] q, float[2] p) {{ q = Abs (x) p = Exp (x) }}>
  w = If (open) <then_branch = e () => (float[2] m) {{
                   k = If (yes) <then_branch = h () => (float[2] n) {{ n = Identity (y) }},
                                 else_branch = i () => (float[2] o) {{ o = Exp (y) }}>
                   m = Neg (k) }},
                 else_branch = j () => (float[2] l) {{ l = Abs (y) }}>
}}
<domain: "mine", opset_import: ["": 17]> f (a) => (b) {{ b = Exp (a) }}"""


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.slow
@pytest.mark.parametrize("no", [0, 1])
@pytest.mark.parametrize("opset", [None, 21])
@pytest.mark.parametrize("chosen", [False, True])
def test_only_open_choices_are_left_by_lower(no: int, opset: int | None, chosen: bool) -> None:
    """Also without the optimiser: onnxruntime's own inlining of nested branches loses values."""
    model = parser.parse_model(NESTED.format(no=no))
    lowered = ll.lower(model, opset, optimize=False, verify_each=True)
    onnx.checker.check_model(lowered, full_check=True)
    assert [node.op_type for node in all_nodes(ir.from_proto(lowered).graph)].count("If") == 1
    feeds = {"x": np.array([1.0, -2.0], np.float32), "open": np.array(chosen)}
    for expected, got in zip(run(model, **feeds), run(lowered, **feeds), strict=True):
        np.testing.assert_array_equal(expected, got)


def test_open_choices_stay() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y) {
      y = If (c) <then_branch = a () => (float[2] t) { t = Neg (x) },
                  else_branch = b () => (float[2] e) { e = Abs (x) }> }"""
    assert not ConstantBranchPass()(ir.from_proto(parser.parse_model(text))).modified


def test_models_that_need_no_lowering_stay() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <bool yes = {1}> {
      y = If (yes) <then_branch = a () => (float[2] t) { t = Neg (x) },
                    else_branch = b () => (float[2] e) { e = Abs (x) }> }"""
    model = parser.parse_model(text)
    assert [node.op_type for node in ll.lower(model).graph.node] == ["If"]
    assert [node.op_type for node in ll.lower(model, 18).graph.node] == ["Neg"]
