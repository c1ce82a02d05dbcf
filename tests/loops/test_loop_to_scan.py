"""Loops of a fixed number of steps."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.passes.loops.loop_to_scan import LoopToScan
from lstm_lower.passes.trace import Trace
from tests.loops.test_each_pass import check, parsed

LONG = """
loops (float[3] first) => (float[3] last)
{
  n = Constant <value = int64 {250000000}> ()
  yes = Constant <value = bool {1}> ()
  last = Loop <body = step (int64 i, bool c, float[3] s) => (bool c2, float[3] s2)
    { c2 = Identity(c) f = Cast <to = 1> (i) s2 = Add(s, f) }> (n, yes, first)
}"""


@pytest.mark.parametrize("schedule", ["auto", "unroll", "chunk:8"])
def test_a_model_does_not_grow_with_its_numbers(schedule: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {LONG}')
    trace = Trace()
    begin = time.perf_counter()
    after = ll.optimize(model, schedule, trace=trace)
    assert time.perf_counter() - begin < 5
    assert after.ByteSize() < 10_000
    assert any("250000000 steps" in refusal.reason for refusal in trace.refusals)


@pytest.mark.parametrize("result", ["bool[4] out", "bool out"], ids=["output", "carried"])
def test_the_condition_may_leave_the_loop(result: str) -> None:
    carried = ("bool q", ", given") if result == "bool out" else ("", "")
    case = parsed(
        f"""
loops (float[3] first, bool given) => (float[3] last, {result})
{{
  n = Constant <value = int64 {{4}}> ()
  yes = Constant <value = bool {{1}}> ()
  last, out = Loop <body = step ({", ".join(filter(None, ["int64 i", "bool c", "float[3] s", carried[0]]))})
    => (bool c, float[3] s2, bool c) {{ s2 = Tanh(s) }}> (n, yes, first{carried[1]})
}}""",
        first=(3,),
    )
    case.feeds["given"] = np.zeros((), np.bool_)
    check(case, LoopToScan(), applies=True)


def test_a_result_of_unknown_rank_keeps_a_loop() -> None:
    """onnxruntime's Scan asks for the rank of what leaves it."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[3,1] x, int64[1] axes) => (float[?,?,?,?] ys) <int64 two = {2}, bool yes = {1}>
    { ys = Loop (two, yes) <body = step (int64 i, bool c) => (bool d, float y)
        { d = Identity(c) y = Unsqueeze(x, axes) }> }""")
    body = next(attribute.g for attribute in model.graph.node[0].attribute)
    body.output[1].type.tensor_type.ClearField("shape")
    feeds = {"x": np.ones((3, 1), np.float32), "axes": np.zeros(1, np.int64)}
    assert ll.Session(ll.optimize(model, "scan")).run(feeds)["ys"].shape == (2, 1, 3, 1)


def test_what_a_loop_declares_of_its_state_does_not_outlive_it() -> None:
    """A Loop's state may change its shape from step to step, so that nothing contradicts what its body declares."""
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] last) {
      trips = Constant <value = int64 {3}> ()
      last = Loop <body = b (int64 i, bool go, float[7,7,7] s) => (bool on, float[7,7,7] t)
        { on = Identity(go) t = Tanh(s) }> (trips, , x) }"""
    model = onnx.parser.parse_model(text)
    after = ll.optimize(model, verify_each=True)
    assert [node.op_type for node in after.graph.node if node.op_type in ("Loop", "Scan")] == ["Scan"]
    onnx.checker.check_model(after, full_check=True)
