"""What loop passes promise is found missing where a pass does nothing, and holds where it does its work."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.passes.loops.common_subexpression_elimination import CommonSubexpressionElimination
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.kernel_selection import KernelSelection
from lstm_lower.passes.loops.loop_reversal import LoopReversal
from lstm_lower.passes.loops.loop_to_scan import LoopToScan
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.shapes import InferShapesPass

LOOP = """<ir_version: 8, opset_import: ["" : 18]>
g (float[4,2,3] xs, float[2,3] first, float[2,3] k) => (float[2,3] last, float[4,2,3] ys) {{ {before}
  last, ys = Scan <num_scan_inputs = 1, body = step (float[2,3] s, float[2,3] x) => (float[2,3] u, float[2,3] y)
    {{ {step} }}> (first, {sequence}) {after} }}"""


def loop(step: str, *, before: str = "", sequence: str = "xs", after: str = "") -> str:
    return LOOP.format(step=step, before=before, sequence=sequence, after=after)


PLAIN = "u = Add(s, x) y = Neg(u)"
TURNED = "i = Constant <value = int64[4] {3, 2, 1, 0}> () turned = Gather <axis = 0> (xs, i) "
TWICE = TURNED + "again = Gather <axis = 0> (turned, i) once = Gather <axis = 0> (again, i)"
UNREAD = """<ir_version: 8, opset_import: ["" : 18]>
g (float[4,2,3] xs, float[4,2] unread, float[2,3] first) => (float[2,3] last) {
  last = Scan <num_scan_inputs = 2, body = step (float[2,3] s, float[2,3] x, float[2] r) => (float[2,3] u)
    { u = Add(s, x) }> (first, xs, unread) }"""
SUM = """<ir_version: 8, opset_import: ["" : 18]>
g (float[400,8,64] xs, float[8,64] first, float[400,8,3] hs) => (float[8,64] last, float[64] b) {
  last, ys = Scan <num_scan_inputs = 1, body = step (float[8,64] s, float[8,64] x) => (float[8,64] u, float[8,64] y)
    { u = Add(s, x) y = Neg(u) }> (first, xs)
  axes = Constant <value = int64[2] {0, 1}> () b = ReduceSum <keepdims = 0> (ys, axes) }"""
TRIPS = """<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] last) {
  trips = Constant <value = int64 {3}> ()
  last = Loop <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t) { on = Identity(go) t = Add(s, x) }>
    (trips, , x) }"""

BROKEN = {
    "invariant node": (InvariantHoisting, loop("t = Tanh(k) u = Add(s, t) y = Mul(u, x)"), "Tanh"),
    "equal nodes": (
        CommonSubexpressionElimination,
        loop("a = Tanh(s) b = Tanh(s) u = Add(a, b) y = Mul(a, x)"),
        "Tanh",
    ),
    "equal to one outside": (
        CommonSubexpressionElimination,
        loop("a = Tanh(k) u = Add(s, a) y = Mul(t, x)", before="t = Tanh(k)"),
        "Tanh",
    ),
    "dead node": (DeadCodeElimination, loop(PLAIN + " d = Tanh(s)"), "Tanh"),
    "dead node outside": (DeadCodeElimination, loop(PLAIN, after="d = Tanh(last)"), "Tanh"),
    "state that stays": (DeadCodeElimination, loop("u = Identity(s) y = Add(s, x)"), "Scan"),
    "sequence that no step reads": (DeadCodeElimination, UNREAD, "Scan"),
    "turned sequence": (LoopReversal, loop(PLAIN, before=TURNED, sequence="turned"), "Scan"),
    "sequence turned three times": (LoopReversal, loop(PLAIN, before=TWICE, sequence="once"), "Scan"),
    "loop": (LoopToScan, TRIPS, "Loop"),
    "sum over rows": (KernelSelection, SUM, "ReduceSum"),
}


def idle(step: type[LoopPass]) -> LoopPass:
    """A pass of the kind that does nothing."""

    def run(self: LoopPass, model: ir.Model) -> bool:
        return False

    return type(step.__name__, (step,), {"run": run})()


@pytest.mark.parametrize("case", BROKEN)
def test_found_missing_and_kept(case: str) -> None:
    step, text, at = BROKEN[case]
    model = ir.from_proto(onnx.parser.parse_model(text))
    InferShapesPass()(model)
    lazy, working = idle(step), step()
    lazy.verify_each = working.verify_each = True
    with pytest.raises(ir.passes.PostconditionError, match=rf"^{step().name}: {at} '.*' requires "):
        lazy(model)
    assert working(model).modified


NESTED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[4,2,3] xs, float[2,3] first) => (float[2,3] last) {
  last, unread = Scan <num_scan_inputs = 1, body = step (float[2,3] s, float[2,3] x) => (float[2,3] u, float[3] y)
    { inner, sums = Scan <num_scan_inputs = 1, body = b (float[3] t, float[3] e) => (float[3] v, float[3] o)
        { v = Add(t, e) o = Tanh(v) }> (zero, x)
      y = Neg(inner) u = Add(s, sums) }> (first, xs)
  zero = Constant <value = float[3] {0.0, 0.0, 0.0}> () }"""


def test_what_an_outer_loop_no_longer_reads_goes_from_the_inner_one() -> None:
    lines = NESTED.splitlines()
    text = "\n".join([*lines[:2], lines[-1].removesuffix(" }"), *lines[2:-1], "}"])
    model = ir.from_proto(onnx.parser.parse_model(text))
    InferShapesPass()(model)
    step = DeadCodeElimination()
    step.verify_each = True
    assert step(model).modified
    assert ll.optimize(model, verify_each=True) is not model
