"""A loop's body that reads from outside is handed what it reads."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given

from lstm_lower.graph.dump import dump
from lstm_lower.graph.edit import captures
from lstm_lower.passes.loops.closed_bodies import ClosedBodies
from lstm_lower.passes.loops.views.loop import scans_of
from lstm_lower.passes.model_pass import Context
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run
from tests.support.loop_models import LoopModel, loop_models

READS = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,2,3] xs, float[2,3] h0, float[3,3] w, bool c) => (float[2,3] last, float[4,2,3] ys)
<float[40,20] large = {LARGE}>
{
  axes = Constant <value = int64[1] {0}> ()
  sums = ReduceSum <keepdims = 0> (large)
  last, ys = Scan <num_scan_inputs = 1, body = step (float[2,3] h, float[2,3] x) => (float[2,3] u, float[2,3] y)
    {
      p = MatMul(h, w)
      e = Unsqueeze(p, axes)
      f = Squeeze(e, axes)
      part = ReduceMean <keepdims = 0> (large)
      z = If (c) <then_branch = yes () => (float[3,3] t) { t = Identity(w) },
                  else_branch = no () => (float[3,3] n) { n = Neg(w) }>
      q = MatMul(x, z)
      a = Add(f, q)
      b = Mul(a, part)
      d = Add(b, sums)
      u = Tanh(d)
      y = Neg(d)
    }> (h0, xs)
}"""
LARGE = ",".join(map(str, np.linspace(-1, 1, 800).round(4)))


def case() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    sizes = {"xs": (4, 2, 3), "h0": (2, 3), "w": (3, 3)}
    feeds = {name: random.standard_normal(shape).astype("f") for name, shape in sizes.items()}
    return onnx.parser.parse_model(READS.replace("LARGE", LARGE)), feeds | {"c": np.zeros((), bool)}


def test_nothing_is_read_from_outside() -> None:
    model, feeds = case()
    work = ir.from_proto(model)
    step = ClosedBodies(Context(work))
    step.verify_each = True
    assert step(work).modified
    (scan,) = scans_of(work.graph)
    assert not captures(scan)
    # The matrix, the large constant, its sum and the condition are handed in; axes stand inside.
    assert len(scan.inputs) == len(case()[1]) - 2 + 2 + 2
    assert_same(run(ir.to_proto(work), feeds), run(model, feeds))
    assert not step(work).modified


@pytest.mark.slow
@tried(12)
@given(case=loop_models())
def test_closed_bodies_keep_results(case: LoopModel) -> None:
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    step = ClosedBodies(Context(work))
    step.verify_each = True
    step(work)
    before, after = (run(model, case.feeds, optimised=False) for model in (case.model, ir.to_proto(work)))
    assert_same(after, before)


def test_golden(golden: Golden) -> None:
    model, _ = case()
    work = ir.from_proto(model)
    InferShapesPass()(work)
    before = dump(work)
    ClosedBodies(Context(work))(work)
    golden("loop_closed-bodies", before=before, after=dump(work))
