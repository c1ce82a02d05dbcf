"""What gradients look like: the smallest case of each form."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from lstm_lower.graph.dump import dump
from lstm_lower.passes.differentiate import gradient_passes
from lstm_lower.passes.driver import run_passes
from tests.conftest import Golden

MODELS = {
    "product": "g (float[B,2] x) => (float[B,3] y) <float[2,3] w = {1,2,3,4,5,6}> { a = MatMul(x, w)  y = Tanh(a) }",
    "broadcast": "g (float[B,3] x, float[3] w) => (float[B,3] y) { y = Mul(x, w) }",
    "scan": """g (float[T,B] x, float[B] h, float[B] w) => (float[B] y) {
        y = Scan <num_scan_inputs = 1, body = b (float[B] s, float[B] e) => (float[B] t) {
          m = Mul(s, w)  a = Add(m, e)  t = Tanh(a)
        }> (h, x) }""",
    "loop": """g (float[B] h, float[B] w, float limit) => (float[B] y) {
        go = Constant <value = bool {1}> ()
        y = Loop <body = b (int64 i, bool c, float[B] s) => (bool d, float[B] t) {
          t = Mul(s, w)  n = ReduceSum <keepdims = 0> (t)  d = Less(n, limit)
        }> (, go, h) }""",
    "if": """g (float[B] x, bool c) => (float[B] y) {
        y = If (c) <then_branch = t () => (float[B] p) { p = Exp(x) },
                    else_branch = e () => (float[B] q) { q = Neg(x) }> }""",
}


@pytest.mark.parametrize("name", MODELS)
def test_goldens(name: str, golden: Golden) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]>\n' + MODELS[name])
    wrt = ["x"] if name == "if" else ["w"]
    made = run_passes(model, gradient_passes("y", wrt, seeds=True, optimize=False))
    golden(f"gradient_{name}", before=dump(ir.from_proto(model)), after=dump(made))
