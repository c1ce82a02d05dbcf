"""One step's node written for all steps at once: forms of operators in which time must not be touched."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.passes.loops.algebraic_simplification import AlgebraicSimplification
from lstm_lower.passes.loops.loop_invariant_code_motion import LoopInvariantCodeMotion
from lstm_lower.passes.loops.reduction_recognition import ReductionRecognition
from tests.loops.test_each_pass import check, parsed
from tests.support.loop_checks import assert_same, run
from tests.support.loop_models import LoopModel

STEP = """
loops (float[2,3] first, float[{T},2,3] xs, float[2,2] w) => (float[2,3] last, {result} ys)
{{
  last, ys = Scan <num_scan_inputs = 1, body = step (float[2,3] s, float[2,3] x) => (float[2,3] s2, {made} y)
    {{ s2 = Add(s, x) {body} }}> (first, xs)
}}"""
FORMS = {
    "squeeze_nothing": "y = Squeeze(x)",
    "squeeze_empty_axes": "none = Constant <value = int64[0] {}> () y = Squeeze(x, none)",
    "slice_int32": "a = Constant <value = int32[1] {0}> () b = Constant <value = int32[1] {1}> () u = Slice(x, a, b) "
    "y = Expand(u, k)",
    "slice_int32_axes": "a = Constant <value = int32[1] {0}> () b = Constant <value = int32[1] {2}> () "
    "c = Constant <value = int32[1] {-1}> () u = Slice(x, a, b, c) v = Concat <axis = 1> (u, u) "
    "d = Constant <value = int32[1] {1}> () z = Constant <value = int32[1] {4}> () y = Slice(v, d, z, c)",
    "squared_and_not_summed": "y = ReduceSumSquare <noop_with_empty_axes = 1> (x)",
    "not_summed": "none = Constant <value = int64[0] {}> () y = ReduceSum <noop_with_empty_axes = 1> (x, none)",
    "gemm_without_bias": "n = Div(x, o) y = Gemm <beta = 0.0> (w, x, n)",
    "slope": "y = PRelu(f, x)",
    "shape_from_before_axis_0": "n = Shape <start = -5> (x) m = Cast <to = 1> (n) u = ReduceSum(m) y = Add(x, u)",
}


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("form", FORMS)
def test_form_of_an_operator(form: str, steps: int) -> None:
    constants = "k = Constant <value = int64[2] {2, 3}> () o = Constant <value = float {0.0}> () "
    constants += "f = Constant <value = float[2,3] {-1.0, 2.0, -3.0, 4.0, -5.0, 6.0}> () "
    text = STEP.format(T=steps, result=f"float[{steps},2,3]", made="float[2,3]", body=constants + FORMS[form])
    case = parsed(text, first=(2, 3), xs=(steps, 2, 3), w=(2, 2))
    check(case, LoopInvariantCodeMotion())


@pytest.mark.parametrize("schedule", ["auto", "scan", "unroll", "chunk:2"])
def test_a_shape_may_leave_the_loop(schedule: str) -> None:
    case = parsed(
        """
loops (float[N,1] first, float[4,2] xs, float[1,2] w, float[2,2] w2) => (float[N,1] last, int64[4,2] ys)
{
  last, ys = Scan <num_scan_inputs = 1, body = step (float[N,1] s, float[2] x) => (float[N,1] s2, int64[2] y)
    { p = MatMul(s, w) a, b = Split <axis = 1, num_outputs = 2> (p) q = MatMul(p, w2) y = Shape(q) s2 = Add(s, b) }>
    (first, xs)
}""",
        first=(3, 1),
        xs=(4, 2),
        w=(1, 2),
        w2=(2, 2),
    )
    assert_same(run(case.model, case.feeds), run(ll.optimize(case.model, schedule), case.feeds))


SUM = """
loops ({dtype}[3] first, {dtype}[4,3] xs) => ({dtype}[3] last)
{{
  last = Scan <num_scan_inputs = 1, body = step ({dtype}[3] s, {dtype}[3] x) => ({dtype}[3] s2)
    {{ {body} s2 = Add(s, y) }}> (first, xs)
}}"""


@pytest.mark.parametrize("dtype", ["int8", "uint32"])
def test_a_sum_that_onnxruntime_does_not_have_stays_in_the_loop(dtype: str) -> None:
    text = SUM.format(dtype=dtype, body="y = Identity(x)")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    feeds = {"first": np.arange(3), "xs": np.arange(12).reshape(4, 3)}
    case = LoopModel(model, {name: value.astype(dtype) for name, value in feeds.items()})
    check(case, ReductionRecognition(), applies=False)


@pytest.mark.parametrize("schedule", ["auto", "unroll", "chunk:2"])
def test_what_is_added_may_be_of_unknown_rank(schedule: str) -> None:
    body = """
    n = Constant <value = int64 {2}> ()
    v, vs = Loop <body = inner (int64 i, bool c, float[N] p) => (bool c2, float[M] p2, float[K] q)
      { c2 = Identity(c) p2 = Mul(p, w) q = Identity(p) }> (n, , x)
    y = ReduceMean <keepdims = 0> (v)"""
    text = SUM.format(dtype="float", body=body).replace("4,3] xs", "4,3] xs, float[3] w")
    case = parsed(text, first=(3,), xs=(4, 3), w=(3,))
    assert_same(run(case.model, case.feeds), run(ll.optimize(case.model, schedule), case.feeds))


def test_a_slice_of_a_transposed_value_keeps_its_integers() -> None:
    case = parsed(
        """
loops (float[2,3] x) => (float[3,1] y)
{
  t = Transpose <perm = [1, 0]> (x)
  a = Constant <value = int32[1] {0}> ()
  b = Constant <value = int32[1] {1}> ()
  y = Slice(t, a, b, b)
}""",
        x=(2, 3),
    )
    check(case, AlgebraicSimplification(), applies=True)


@pytest.mark.parametrize("shape", [(3, 2), (3, 3), (4, 3, 2)])
def test_a_transposed_matrix_times_a_vector(shape: tuple[int, ...]) -> None:
    perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    made = [shape[axis] for axis in perm[:-1]]
    case = parsed(
        f"loops (float{list(shape)} a, float[3] v) => (float{made} y) "
        f"{{ t = Transpose <perm = {perm}> (a) y = MatMul(t, v) }}",
        a=shape,
        v=(3,),
    )
    # onnxruntime reads the matrix wrongly in the original.
    after = ll.optimize(case.model)
    assert_same(run(case.model, case.feeds, optimised=False), run(after, case.feeds, optimised=True))


@pytest.mark.parametrize("between", ["Add(t, t)", "Relu(t)", "Identity(t)"])
def test_a_computed_matrix_times_a_vector(between: str) -> None:
    case = parsed(
        f"loops (float[3,2] a, float[3] v) => (float[2] y) {{ "
        f"t = Transpose <perm = [1, 0]> (a) m = {between} y = MatMul(m, v) }}",
        a=(3, 2),
        v=(3,),
    )
    # onnxruntime moves the Transpose behind an Add, and then reads the matrix wrongly in the original.
    after = ll.optimize(case.model)
    assert_same(run(case.model, case.feeds, optimised=False), run(after, case.feeds, optimised=True))


def test_padded_terms_that_are_repeated_are_not_joined() -> None:
    case = parsed(
        """loops (float[1,2] a, float[4,1] b) => (float[4,3] y) {
            left = Constant <value_ints = [0, 0, 0, 1]> () right = Constant <value_ints = [0, 2, 0, 0]> ()
            p = Pad(a, left) q = Pad(b, right) y = Add(p, q) }""",
        a=(1, 2),
        b=(4, 1),
    )
    check(case, AlgebraicSimplification(), applies=False)
