"""Random loops in foreign forms: as `Loop`, and with no sizes declared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.algebraic_simplification import AlgebraicSimplification
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.loop_to_scan import LoopToScan
from lstm_lower.passes.loops.product_fusion import ProductFusion
from lstm_lower.passes.pipeline import Trace
from lstm_lower.passes.shapes import InferShapesPass
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run, run_reference
from tests.support.loop_forms import as_loop, with_plain_outputs, without_sizes
from tests.support.loop_models import LoopModel, loop_models

quick = tried(12)


def op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.slow
@quick
@given(case=loop_models(), carried=st.booleans(), extra=st.integers(0, 2))
def test_loop_becomes_a_scan(case: LoopModel, carried: bool, extra: int) -> None:
    loop = as_loop(case, carried=carried, extra=extra)
    before = run(loop.model, loop.feeds, optimised=False)
    assert_same(run(with_plain_outputs(case.model), case.feeds, optimised=False), before)
    work = ir.from_proto(loop.model)
    InferShapesPass()(work)
    assert LoopToScan()(work).modified
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    assert "Loop" not in op_types(after)
    assert "Scan" in op_types(after)
    (scan,) = [node for node in work.graph if node.op_type == "Scan"]
    assert not any(node.op_type == "Gather" for node in scan.attributes["body"].as_graph())
    assert_same(before, run(after, loop.feeds, optimised=False))


@pytest.mark.slow
@quick
@given(case=loop_models(), carried=st.booleans())
def test_pipeline_keeps_results_of_loops(case: LoopModel, carried: bool) -> None:
    loop = as_loop(case, carried=carried)
    before = run(loop.model, loop.feeds, optimised=False)
    after = ll.optimize(loop.model, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    assert_same(before, run(after, loop.feeds, optimised=False))
    assert_same(before, run(after, loop.feeds))
    assert_same(before, run_reference(after, loop.feeds))


@pytest.mark.slow
@quick
@given(case=loop_models())
def test_pipeline_keeps_results_without_sizes(case: LoopModel) -> None:
    model = without_sizes(case.model)
    before = run(model, case.feeds, optimised=False)
    after = ll.optimize(model, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    assert "?" not in str([value.type for value in after.graph.input])
    assert_same(before, run(after, case.feeds, optimised=False))
    assert_same(before, run(after, case.feeds))


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')


REFUSALS = {
    "the number of steps": "m (float[2] a, int64 n) => (float[2] z) { z = Loop (n, , a) <body = BODY> }",
    "number of steps is not known to be one": """m (float[2] a, bool c) => (float[2] z)
        { n = Constant <value = int64 {3}> () z = Loop (n, c, a) <body = BODY> }""",
    "condition": """m (float a) => (float z) { n = Constant <value = int64 {3}> ()
        z = Loop (n, , a) <body = b (int64 i, bool go, float s) => (bool on, float t)
        { t = Neg(s) on = Less(t, s) }> }""",
    "shape of a carried value": """m (float[1] a, float[2] x) => (float[K] z) { n = Constant <value = int64 {3}> ()
        z = Loop (n, , a) <body = b (int64 i, bool go, float[K] s) => (bool on, float[L] t)
        { on = Identity(go) t = Add(s, x) }> }""",
}
BODY = "b (int64 i, bool go, float[2] s) => (bool on, float[2] t) { on = Identity(go) t = Neg(s) }"


@pytest.mark.parametrize("reason", REFUSALS)
def test_loops_that_stay(reason: str) -> None:
    model = parsed(REFUSALS[reason].replace("BODY", BODY))
    trace = Trace()
    after = ll.optimize(model, trace=trace)
    assert "Loop" in op_types(after)
    assert any(reason in refusal.reason for refusal in trace.refusals)


def test_a_condition_that_is_computed_stays() -> None:
    body = """b (int64 i, bool go, float s) => (bool on, float t)
        { one = Constant <value = float {1}> () t = Neg(s) on = Less(s, one) }"""
    text = f"m (float a) => (float z) {{ n = Constant <value = int64 {{3}}> () z = Loop (n, , a) <body = {body}> }}"
    assert "Loop" in op_types(ll.optimize(parsed(text)))


def test_sizes_reach_the_body_and_come_out_again() -> None:
    text = """m (float[T,2,3] x, float[2,3] h) => (float[A,B] last, float[C,D,E] y) {
        last, made = Scan <num_scan_inputs = 1, body = step (float[?,?] s, float[?,?] e) => (float[?,?] u, float[?,?] v)
        { u = Add(s, e) t = Tanh(u) v = Expand(t, size) }> (h, x)
        y = Neg(made) }"""
    text = text.replace("{\n        last", "<int64[2] size = {1, 3}> {\n        last")
    work = ir.from_proto(parsed(text))
    InferShapesPass()(work)
    (scan,) = [node for node in work.graph if node.op_type == "Scan"]
    assert [str(value.shape) for value in scan.attributes["body"].as_graph().outputs] == ["[2,3]", "[2,3]"]
    assert str(scan.outputs[1].shape) == "[T,2,3]"
    assert AlgebraicSimplification()(work).modified
    assert "Expand" not in [node.op_type for node in scan.attributes["body"].as_graph()]


def test_weights_that_the_body_makes_are_joined() -> None:
    text = """m (float[2,2,3] x, float[2,3] s, float[3,3] w) => (float[2,3] last, float[2,2,3] y) {
        last, y = Scan <num_scan_inputs = 1, body = step (float[2,3] h, float[2,3] e) => (float[2,3] u, float[2,3] o)
        { p = MatMul(h, w) t = Tanh(p) v = Neg(w) q = MatMul(h, v) r = Mul(t, q) u = Add(r, e) o = Neg(u) }> (s, x) }"""
    model = parsed(text)
    work = ir.from_proto(model)
    InferShapesPass()(work)
    assert ProductFusion()(work).modified
    verify(work)
    random = np.random.default_rng(0)
    shapes = {"x": (2, 2, 3), "s": (2, 3), "w": (3, 3)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    assert_same(run(model, feeds, optimised=False), run(ir.to_proto(work), feeds, optimised=False))


def test_a_sum_that_broadcasts_one_product_stays() -> None:
    text = """m (float[2,2,3] x, float[2,3] s, float[3,3] w, float[3,1] v) => (float[2,3] last, float[2,2,3] y) {
        last, y = Scan <num_scan_inputs = 1, body = step (float[2,3] h, float[2,3] e) => (float[2,3] u, float[2,3] o)
        { t = Tanh(h) p = MatMul(t, w) q = MatMul(h, v) r = Add(p, q) u = Add(r, e) o = Neg(u) }> (s, x) }"""
    model = parsed(text)
    random = np.random.default_rng(0)
    shapes = {"x": (2, 2, 3), "s": (2, 3), "w": (3, 3), "v": (3, 1)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    trace = Trace()
    after = ll.optimize(model, trace=trace)
    assert any("equally many columns" in refusal.reason for refusal in trace.refusals)
    assert_same(run(model, feeds, optimised=False), run(after, feeds, optimised=False))


WRITTEN_OUT = {
    "sum over one": ("axes = Constant <value = int64[1] {0}> () y = ReduceSum(x, axes)", "Identity"),
    "sum over one, gone": (
        "axes = Constant <value = int64[1] {0}> () s = ReduceSum <keepdims = 0> (x, axes) y = Unsqueeze(s, axes)",
        "Identity",
    ),
    "scattered among zeros": (
        """shape = Constant <value = int64[3] {1, 2, 3}> () zeros = ConstantOfShape(shape)
        at = Constant <value = int64[1] {0}> () part = Squeeze(x, at)
        y = ScatterND <reduction = "add"> (zeros, at, part)""",
        "Identity",
    ),
    "scattered over all there is": (
        """old = Neg(x) at = Constant <value = int64[1,1] {0}> () y = ScatterND(old, at, x)""",
        "Identity",
    ),
    "turned round twice": (
        """last = Constant <value = int64[1] {-1}> () end = Constant <value = int64[1] {-9223372036854775807}> ()
        axis = Constant <value = int64[1] {1}> () t = Slice(x, last, end, axis, last)
        order = Constant <value = int64[2] {1, 0}> () y = Gather <axis = 1> (t, order)""",
        "Identity",
    ),
    "padded sum": (
        """left = Constant <value = int64[6] {0, 0, 0, 0, 0, 3}> ()
        right = Constant <value = int64[6] {0, 0, 3, 0, 0, 0}> ()
        a = Pad(x, left) b = Pad(x, right) y = Add(b, a)""",
        "Concat",
    ),
    "expanded to itself": ("shape = Constant <value = int64[2] {2, 1}> () y = Expand(x, shape)", "Identity"),
    "transposed new axis": (
        """axis = Constant <value = int64[1] {-1}> () u = Unsqueeze(x, axis)
        y = Transpose <perm = [0, 3, 1, 2]> (u)""",
        "Unsqueeze",
    ),
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_what_is_written_out_becomes_one_node(name: str) -> None:
    text, left = WRITTEN_OUT[name]
    model = parsed(f"m (float[1,2,3] x) => (float y) {{ {text} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    work = ir.from_proto(model)
    InferShapesPass()(work)
    for _ in range(3):
        AlgebraicSimplification()(work)
        DeadCodeElimination()(work)
    after = ir.to_proto(work)
    assert [op for op in op_types(after) if op != "Constant"] == [left]
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 2, 3)).astype(np.float32)}
    assert_same(run(model, feeds, optimised=False), run(after, feeds, optimised=False))


def test_a_range_between_vectors() -> None:
    """onnxruntime computes it, and refuses the model when it finds a vector to be constant."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (int64[3] sizes) => (int64[?] y) <int64 none = {0}, int64 one = {1}, int64[1] two = {2}, int64 three = {3}>
    { n = Size(sizes) c = Equal(n, three)
      limit = If (c) <then_branch = a () => (int64[1] t) { t = Identity(two) },
                      else_branch = b () => (int64[?] e) { e = Identity(sizes) }>
      y = Range(none, limit, one) }"""
    feeds = {"sizes": np.array([1, 2, 3])}
    after = ll.optimize(onnx.parser.parse_model(text))
    for optimised in (False, True):
        np.testing.assert_array_equal(run(after, feeds, optimised=optimised)[0], [0, 1])


def test_a_pad_along_axes_of_32_bits() -> None:
    """onnx's checker bears with them until they are constant."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[T,1] x) => (float[?,?] y) <int64[2] pads = {1, 2}, int64[1] one = {1}>
    { axes = ConstantOfShape <value = int32[1] {-2}> (one) y = Pad(x, pads, , axes) }"""
    after = ll.optimize(onnx.parser.parse_model(text))
    onnx.checker.check_model(after, full_check=True)
    assert run(after, {"x": np.ones((2, 1), np.float32)})[0].shape == (5, 1)


def test_a_known_condition_chooses_a_branch() -> None:
    """onnxruntime's optimiser does the same, and refuses some models whose choices hold others."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[3] x) => (float[?] y, float[?] z) <bool yes = {1}, bool no = {0}>
    { y, z = If (yes) <then_branch = a () => (float[3] t, float[3] s) {
        r = If (no) <then_branch = b () => (float[3] u) { u = Neg(x) },
                     else_branch = c () => (float[3] v) <float[3] w = {1, 2, 3}> { v = Mul(x, w) }>
        q = Shape(r) t = Expand(r, q) s = Identity(x) },
      else_branch = d () => (float[3] t2, float[3] s2) { t2 = Abs(x) s2 = Abs(x) }> }"""
    feeds = {"x": np.array([1, 2, 3], np.float32)}
    after = ll.optimize(onnx.parser.parse_model(text), verify_each=True)
    assert "If" not in op_types(after)
    for optimised in (False, True):
        y, z = run(after, feeds, optimised=optimised)
        np.testing.assert_array_equal(y, [1, 4, 9])
        np.testing.assert_array_equal(z, [1, 2, 3])


def test_halves_are_transposed_behind_a_product() -> None:
    """onnxruntime dies of a Transpose of halves before a product with a constant matrix."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float16[B,T,3] xs) => (float16[?,?,?] ys) <float16[3,2] w = {0, 1, 2, 3, 4, 5}, float16[2,2] s = {0, 0, 0, 0}>
    { last, ys = Scan <num_scan_inputs = 1, scan_input_axes = [1],
        body = step (float16[2,2] h, float16[B,3] x) => (float16[?,?] n, float16[?,?] y)
        { a = MatMul(x, w) b = Add(a, h) n = Tanh(h) y = Identity(b) }> (s, xs) }"""
    after = ll.optimize(onnx.parser.parse_model(text), "scan")
    before_product = {node.input[0] for node in after.graph.node if node.op_type == "MatMul"}
    assert before_product
    assert not any(node.output[0] in before_product for node in after.graph.node if node.op_type == "Transpose")
    assert run(after, {"xs": np.ones((2, 3, 3), np.float16)}, optimised=True)[0].shape == (3, 2, 2)


@pytest.mark.slow
def test_halves_of_a_function_are_transposed_behind_a_product() -> None:
    """Nothing is known of what a function gives; the matrix tells the dtype."""
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
    g (float16[2,3,3] xs) => (float16[?,?,?] y) <float16[3,2] w = {0, 1, 2, 3, 4, 5}>
    { z = local.f (xs) t = Transpose <perm = [1, 0, 2]> (z) y = MatMul (t, w) }
    <domain: "local", opset_import: ["" : 18]> f (a) => (c) { c = Neg (a) }"""
    model = onnx.parser.parse_model(text)
    after = ll.optimize(model)
    assert op_types(after) == ["f", "MatMul", "Transpose"]
    feeds = {"xs": np.arange(18, dtype=np.float16).reshape(2, 3, 3)}
    assert_same(run(model, feeds, optimised=False), run(after, feeds, optimised=True))


@pytest.mark.parametrize("product", ["[1, 0, 2]> (xs) y = MatMul (w, t)", "[1, 2, 0]> (xs) y = MatMul (t, w)"])
def test_a_matrix_of_halves_times_a_transposed_batch_runs(product: str) -> None:
    """onnxruntime dies of that, too, where the matrix is a constant."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float16[3,T,2] xs) => (float16[?,?,?] y) <float16[3,3] w = {{0, 1, 2, 3, 4, 5, 6, 7, 8}}>
    {{ t = Transpose <perm = {product} }}"""
    model = onnx.parser.parse_model(text)
    feeds = {"xs": np.arange(24, dtype=np.float16).reshape(3, 4, 2)}
    after = ll.optimize(model, verify_each=True)
    assert_same(run(model, feeds, optimised=False), run(after, feeds, optimised=True))


@pytest.mark.parametrize("cast", ["Cast <to = 1> (t)", "CastLike (t, w)"])
@pytest.mark.parametrize("product", ["MatMul (c, w)", "MatMul (w, c)"])
def test_what_is_cast_is_transposed_after_that(cast: str, product: str) -> None:
    """onnxruntime dies of a Cast between a Transpose of a batch and a product with a matrix."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float16[T,3,3] x) => (float[?,?,?] y) <float[3,3] w = {{0, 1, 2, 3, 4, 5, 6, 7, 8}}>
    {{ t = Transpose <perm = [1, 0, 2]> (x) c = {cast} y = {product} }}"""
    model = onnx.parser.parse_model(text)
    feeds = {"x": np.arange(27, dtype=np.float16).reshape(3, 3, 3)}
    after = ll.optimize(model)
    assert_same(run(model, feeds, optimised=False), run(after, feeds, optimised=True))


def test_unrolled_steps_share_no_names() -> None:
    """Not those of initializers in their branches either."""
    text = """m (float[2,3] xs, bool which) => (float[2,3] ys) { ys = Scan <num_scan_inputs = 1,
      body = step (float[3] x) => (float[3] y) { y = If (which) <
        then_branch = g1 () => (float[3] a) <float[3] k = {1, 2, 3}> { a = Add(x, k) },
        else_branch = g2 () => (float[3] b) <float[3] l = {4, 5, 6}> { b = Mul(x, l) }> }> (xs) }"""
    model = parsed(text)
    after = ll.optimize(model, "unroll", verify_each=True)
    assert "Scan" not in op_types(after)
    feeds = {"xs": np.arange(6, dtype=np.float32).reshape(2, 3), "which": np.array(1, bool)}
    assert_same(run(model, feeds, optimised=False), run(after, feeds, optimised=False))


def test_what_a_function_reads_stays_in_the_loop() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
    m (float[4,2,3] xs) => (float[4,2,3] ys) { ys = Scan <num_scan_inputs = 1,
      body = step (float[2,3] x) => (float[2,3] y)
        { k = Constant <value = float[3,3] {1, 2, 3, 4, 5, 6, 7, 8, 9}> () h = MatMul(x, k) y = local.f(x, h) }> (xs) }
    <domain: "local", opset_import: ["" : 18]> f (a, b) => (c) { c = Add(a, b) }"""
    model = onnx.parser.parse_model(text)
    feeds = {"xs": np.arange(24, dtype=np.float32).reshape(4, 2, 3)}
    assert_same(run(model, feeds, optimised=False), run(ll.optimize(model), feeds, optimised=False))


def test_a_product_of_unknown_rank_stays_a_gemm() -> None:
    """Of a MatMul of unknown operands onnxruntime knows no rank, and a Scan's outputs need one."""
    text = """m (float[4,2,3] ws, float[4,2,2] xs) => (float[?,?,?] ys) {
      some = SequenceConstruct(ws) n = Constant <value = int64 {0}> () s = SequenceAt(some, n)
      ys = Scan <num_scan_inputs = 2, body = step (float[] w, float[2,2] x) => (float[?,?] y) { y = Gemm(x, w) }>
        (s, xs) }"""
    model = parsed(text)
    feeds = {"ws": np.ones((4, 2, 3), np.float32), "xs": np.ones((4, 2, 2), np.float32)}
    before = run(model, feeds, optimised=False)
    for schedule in ("auto", "scan", "chunk:3"):
        assert_same(before, run(ll.optimize(model, schedule), feeds, optimised=False))


@pytest.mark.parametrize("make", [ll.optimize, ll.lower])
def test_a_rank_that_only_a_loop_within_says_is_kept_when_that_loop_goes(make: Callable[..., onnx.ModelProto]) -> None:
    """onnxruntime asks for the rank of what leaves a Scan."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[4,2] xs, int64[k] shape) => (float[t,a,b,c] ys) {
      ys = Scan <num_scan_inputs = 1, body = outer (float[2] x) => (float[] y) {
        whole = Reshape(xs, shape)
        y, zs = Scan <num_scan_inputs = 1, body = inner (float[] s, float e) => (float[a,b,c] t, float z) {
          t = Identity(s)
          z = Neg(e)
        }> (whole, x)
      }> (xs)
    }""")
    feeds = {"xs": np.arange(8, dtype=np.float32).reshape(4, 2), "shape": np.array([2, 1, 4])}
    np.testing.assert_array_equal(run(make(model), feeds)[0], run(model, feeds)[0])
