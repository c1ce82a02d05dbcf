"""What the steps of Loops append to a carried tensor."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.concatenation_recognition import ConcatenationRecognition
from lstm_lower.passes.pipeline import Trace, optimize
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.loop_checks import assert_same, run

# What a step appends to `rows`, which begins with one row of two, and hands on as `more`.
LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[T,3,N] xs, float[1,{columns}] first, float[3,N] s0, int64 trips)
  => (float[3,N] last, float[R,{columns}] all)
<int64[1] none = {{0}}, int64[1] one = {{1}}>
{{
  go = Constant <value = bool {{1}}> ()
  last, all = Loop (trips, go, s0, first) <body = step (int64 i, bool c, float[3,N] s, float[?,{columns}] rows)
    => (bool more, float[3,N] u, float[?,{columns}] next) {{
    more = Identity(c) x = Gather(xs, i) t = Add(s, x) {body}
  }}>
}}"""
APPENDED = {
    "u = Tanh(t) next = Concat <axis = 0> (rows, u)": True,
    "u = Tanh(t) m = Neg(x) next = Concat <axis = 0> (rows, m, u)": True,
    "u = Tanh(t) m = Slice(u, none, one, one) next = Concat <axis = 0> (rows, m)": True,
    # The same in every step.
    "u = Tanh(t) next = Concat <axis = 0> (rows, s0)": True,
    # In front; read by the steps; handed on besides; of a size of its own in every step.
    "u = Tanh(t) next = Concat <axis = 0> (u, rows)": False,
    "m = ReduceMax(rows) u = Sub(t, m) next = Concat <axis = 0> (rows, u)": False,
    "m = Concat <axis = 0> (rows, t) e = ReduceMin(m) u = Sub(t, e) next = Identity(m)": False,
    "u = Tanh(t) k = Unsqueeze(i, none) m = Slice(u, none, k) next = Concat <axis = 0> (rows, m)": False,
}


def model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(LOOP.format(body=body, columns=1 if "one, one" in body else "N"))


def feeds(trips: int, columns: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"xs": (5, 3, 2), "first": (1, columns), "s0": (3, 2)}
    drawn = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return {**drawn, "trips": np.array(trips)}


@pytest.mark.parametrize(("body", "applies"), APPENDED.items())
def test_appended_rows(body: str, applies: bool) -> None:
    """No step, one, and several; what other passes make of it besides."""
    before, work = model(body), ir.from_proto(model(body))
    InferShapesPass()(work)
    assert ConcatenationRecognition()(work).modified == applies
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    (loop,) = [node for node in after.graph.node if node.op_type == "Loop"]
    grows = [node.op_type for node in loop.attribute[0].g.node if "rows" in node.input]
    assert bool(grows) != applies
    for trips in (0, 1, 4):
        fed = feeds(trips, 1 if "one, one" in body else 2)
        expected = run(before, fed, optimised=False)
        for found in (after, optimize(before, verify_each=True)):
            assert_same(run(found, fed, optimised=False), expected)


def test_refusal() -> None:
    trace = Trace()
    optimize(model(list(APPENDED)[-1]), trace=trace)
    assert any("another shape in another step" in refusal.reason for refusal in trace.refusals)


def test_golden(golden: Golden) -> None:
    work = ir.from_proto(model(next(iter(APPENDED))))
    InferShapesPass()(work)
    before = dump(work)
    assert ConcatenationRecognition()(work).modified
    golden("loop_concatenation-recognition", before=before, after=dump(work))
