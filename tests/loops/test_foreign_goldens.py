"""Each pass that exporters' loops gave rise to, alone on one small loop that shows what it does, before and after."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.batch_axis_contraction import BatchAxisContraction
from lstm_lower.passes.loops.concat_fusion import ConcatFusion
from lstm_lower.passes.loops.layout_assignment import LayoutAssignment
from lstm_lower.passes.loops.loop_reversal import LoopReversal
from lstm_lower.passes.loops.loop_to_scan import LoopToScan
from lstm_lower.passes.loops.product_fusion import ProductFusion
from lstm_lower.passes.loops.vectorization import Vectorization
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden

ROWS = "float[2,3] s, float[2,3] x"
PASSES: dict[type[LoopPass], str] = {
    LoopToScan: """(float[4,2,3] sequence, float[2,3] first) => (float[2,3] last, float[4,2,3] made) {
        steps = Constant <value = int64 {4}> ()
        last, kept, made = Loop (steps, , first, sequence) <body = step
            (int64 number, bool go, float[2,3] s, float[4,2,3] q)
            => (bool on, float[2,3] u, float[4,2,3] p, float[2,3] y)
            { one = Constant <value = int64 {3}> () at = Sub(one, number) x = Gather(q, at)
              u = Add(s, x) y = Neg(u) on = Identity(go) p = Identity(q) }> }""",
    LayoutAssignment: """(float[2,2,3,N] sequence, float[2,3,N] first, float[3,3] w)
        => (float[2,3,N] last, float[2,2,3,N] made) {
        last, made = Scan <num_scan_inputs = 1, body = step (float[2,3,N] s, float[2,3,N] x)
            => (float[2,3,N] u, float[2,3,N] y)
            { a = Add(s, x) t = Transpose <perm = [2, 0, 1]> (a) p = MatMul(t, w)
              b = Transpose <perm = [1, 2, 0]> (p) u = Tanh(b) y = Neg(u) }> (first, sequence) }""",
    ProductFusion: f"""(float[2,2,3] sequence, float[2,3] first, float[3,3] v, float[3,3] w)
        => (float[2,3] last, float[2,2,3] made) {{
        last, made = Scan <num_scan_inputs = 1, body = step ({ROWS}) => (float[2,3] u, float[2,3] y)
            {{ a = MatMul(s, v) b = MatMul(s, w) c = Tanh(a) d = Tanh(b) p = MatMul(c, v) q = MatMul(d, w) r = Add(p, q)
              u = Add(r, x) y = Neg(u) }}> (first, sequence) }}""",
    ConcatFusion: f"""(float[2,2,3] sequence, float[2,3] first, float[6,3] tall)
        => (float[2,3] last, float[2,2,3] left, float[2,2,3] right) {{
        last, left, right = Scan <num_scan_inputs = 1, body = step ({ROWS})
            => (float[2,3] u, float[2,3] a, float[2,3] b)
            {{ a = Mul(s, x) t = Tanh(s) b = Mul(t, x) c = Concat <axis = 1> (a, b) u = MatMul(c, tall) }}>
            (first, sequence) }}""",
    Vectorization: f"""(float[2,2,3] sequence, float[2,3] first, float[3,6] wide, float[3] k, float[3] l)
        => (float[2,3] last, float[2,2,3] made) {{
        last, made = Scan <num_scan_inputs = 1, body = step ({ROWS}) => (float[2,3] u, float[2,3] y)
            {{ p = MatMul(s, wide) a, b = Split <axis = 1, num_outputs = 2> (p) c = Add(a, k) d = Add(b, l)
              e = Sigmoid(c) f = Sigmoid(d) g = Mul(e, f) u = Add(g, x) y = Neg(u) }}> (first, sequence) }}""",
    LoopReversal: f"""(float[4,2,3] sequence, float[2,3] first) => (float[2,3] last, float[4,2,3] result) {{
        one = Constant <value = int64[1] {{-1}}> () end = Constant <value = int64[1] {{-9223372036854775807}}> ()
        axis = Constant <value = int64[1] {{0}}> () turned = Slice(sequence, one, end, axis, one)
        last, made = Scan <num_scan_inputs = 1, body = step ({ROWS}) => (float[2,3] u, float[2,3] y)
            {{ u = Add(s, x) y = Neg(u) }}> (first, turned)
        order = Constant <value = int64[4] {{3, 2, 1, 0}}> () result = Gather(made, order) }}""",
    BatchAxisContraction: """(float[T,2,3] a, float[T,2,4] b, float[T,N,2,3] d)
        => (float[3,4] sum, float[4,3] turned, float[N,3] rows) {
        apart = Constant <value = int64[2] {0, 2}> () rows = ReduceSum <keepdims = 0> (d, apart)
        axes = Constant <value = int64[1] {0}> ()
        c = Transpose <perm = [0, 2, 1]> (a) p = MatMul(c, b) sum = ReduceSum <keepdims = 0> (p, axes)
        q = MatMul(c, b) t = Transpose <perm = [0, 2, 1]> (q) turned = ReduceSum <keepdims = 0> (t, axes) }""",
}


# Of a pass that has another golden already.
NAMES: dict[type[LoopPass], str] = {ConcatFusion: "loop_concat-fusion_outputs"}


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.name)
def test_pass(golden: Golden, step: type[LoopPass]) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 18]> loops {PASSES[step]}'
    work = ir.from_proto(onnx.parser.parse_model(text))
    InferShapesPass()(work)
    before = dump(work)
    assert step()(work).modified
    verify(work)
    onnx.checker.check_model(ir.to_proto(work), full_check=True)
    golden(NAMES.get(step, f"loop_{step.name}"), before=before, after=dump(work))
