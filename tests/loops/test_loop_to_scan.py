"""Loops of a fixed number of steps."""

from __future__ import annotations

import time

import onnx
import pytest

import lstm_lower as ll
from lstm_lower.passes.trace import Trace

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
