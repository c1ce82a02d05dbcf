"""Products over many rows take their first operand laid out, where that is known to pay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.kernel_selection import KernelSelection
from lstm_lower.passes.model_pass import Context
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run

# A product over the steps and rows of a sequence beside the loop that makes it.
MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
loops ({kind}[{sizes},{width}] xs, {kind}[{rows},{columns}] g, {kind}[{width}] first)
  => ({kind}[{width}] last, {kind}[K,N] w)
{{
  last, ys = Scan <num_scan_inputs = 1, body = step ({kind}[{width}] s, {kind}[{batch},{width}] x)
    => ({kind}[{width}] u, {kind}[{batch},{width}] y)
    {{ axes = Constant <value = int64[1] {{0}}> () m = ReduceMean <keepdims = 0> (x, axes) u = Add(s, m) y = Neg(x) }}>
    (first, xs)
  shape = Constant <value = int64[2] {{-1, {width}}}> ()
  flat = {flatten}
  {product}
}}"""
FLATTEN = {"Flatten": "Flatten <axis = 2> (ys)", "Reshape": "Reshape(ys, shape)"}
PRODUCTS = {
    "Gemm": "w = Gemm <transA = 1> (flat, g)",
    "MatMul": "t = Transpose <perm = [1, 0]> (flat) w = MatMul(t, g)",
    "scaled": "w = Gemm <transA = 1, alpha = 0.5> (flat, g)",
    "both transposed": "gt = Transpose <perm = [1, 0]> (g) w = Gemm <transA = 1, transB = 1> (flat, gt)",
}


def case(
    steps: int = 40,
    width: int = 3,
    columns: int = 1024,
    kind: str = "float",
    product: str = "Gemm",
    flatten: str = "Flatten",
    *,
    is_open: bool = False,
    sum_of_rows: str = "",
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model, and values for its inputs."""
    batch, rows = 2, "R" if is_open else steps * 2
    text = MODEL.format(
        kind=kind, width=width, columns=columns, batch="B" if is_open else batch, flatten=FLATTEN[flatten],
        sizes="T,B" if is_open else f"{steps},{batch}", rows=rows, product=sum_of_rows or PRODUCTS[product],
    )  # fmt: skip
    if sum_of_rows:
        made = "float[M] c)" if "keepdims = 0> (g, rows)" in sum_of_rows else "float[L,M] c)"
        text = text.replace("[K,N] w)", f"[K,N] w, {made}")
    dtype = np.float32 if kind == "float" else np.float64
    random = np.random.default_rng(0)
    shapes = {"xs": (steps, batch, width), "g": (steps * batch, columns), "first": (width,)}
    return onnx.parser.parse_model(text), {k: random.standard_normal(v).astype(dtype) for k, v in shapes.items()}


AXES = "one = Constant <value = int64[1] {1}> () rows = Constant <value = int64[1] {0}> () "
# Where the sum stands, and the operators that are left of it and the product.
SUMS = {
    "behind": ("w = Gemm <transA = 1> (flat, g) b = ReduceSum(g, rows) c = Neg(b)", ["MatMul"]),
    "a vector": ("w = Gemm <transA = 1> (flat, g) b = ReduceSum <keepdims = 0> (g, rows) c = Neg(b)", ["MatMul"]),
    "before": ("b = ReduceSum(g, rows) c = Neg(b) w = Gemm <transA = 1> (flat, g)", ["MatMul"]),
    "before its rows": (
        "b = ReduceSum(g, rows) c = Neg(b) again = Flatten <axis = 2> (ys) w = Gemm <transA = 1> (again, g)",
        ["MatMul"],
    ),
    "before other rows": (
        "b = ReduceSum(g, rows) c = Neg(b) other = Sin(flat) w = Gemm <transA = 1> (other, g)",
        ["MatMul", "Gemm"],
    ),
    "of other rows": (
        "k = Neg(g) b = ReduceSum(k, rows) c = Neg(b) w = Gemm <transA = 1> (flat, g)",
        ["MatMul", "Gemm"],
    ),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("form", SUMS)
def test_sum_of_the_same_rows(form: str, is_open: bool) -> None:
    """A sum becomes one more row of the product, which alone would be too narrow, or a product of its own."""
    text, left = SUMS[form]
    model, feeds = case(columns=384, product="Gemm", is_open=is_open, sum_of_rows=AXES + text)
    modified, _, operators = applied(model, feeds)
    assert modified
    assert [name for name in operators if name in ("MatMul", "Gemm")] == left


# Products of several operands with the same matrix, and how many products are left.
JOINED = {
    "two": ("w = Gemm <transA = 1> (flat, g) k = Sin(flat) c = Gemm <transA = 1> (k, g)", 2),
    "two at hand": ("k = Sin(flat) w = Gemm <transA = 1> (flat, g) c = Gemm <transA = 1> (k, g)", 1),
    "rows laid out later": (
        "w = Gemm <transA = 1> (flat, g) k = Flatten <axis = 2> (ys) c = Gemm <transA = 1> (k, g)",
        1,
    ),
    "a wide one": (
        """
      k = Concat <axis = 1> (flat, g) w = Gemm <transA = 1> (flat, g) c = Gemm <transA = 1> (k, g)""",
        2,
    ),
    "a wide one first": (
        """
      k = Concat <axis = 1> (flat, g) w = Gemm <transA = 1> (k, g) c = Gemm <transA = 1> (flat, g)""",
        2,
    ),
    "two and a sum": (
        """
      k = Sin(flat) w = Gemm <transA = 1> (flat, g) t = Transpose <perm = [1, 0]> (k) p = MatMul(t, g)
      b = ReduceSum(g, rows) c = Add(p, b)""",
        1,
    ),
    "the same rows otherwise": (
        """
      thrice = Unsqueeze(g, one) again = Flatten <axis = 2> (thrice)
      w = Gemm <transA = 1> (flat, g) c = Gemm <transA = 1> (flat, again)""",
        1,
    ),
    "other rows": (
        """
      k = Sin(flat) other = Neg(g) w = Gemm <transA = 1> (flat, g) c = Gemm <transA = 1> (k, other)""",
        2,
    ),
    "the first one's result": (
        """
      w = Gemm <transA = 1> (flat, g) part = Slice(w, zero, one, one) k = Mul(flat, part)
      c = Gemm <transA = 1> (k, g)""",
        2,
    ),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("form", JOINED)
def test_products_with_the_same_matrix_become_one(form: str, is_open: bool) -> None:
    text, left = JOINED[form]
    zero = "zero = Constant <value = int64[1] {0}> () "
    model, feeds = case(columns=512, width=1, is_open=is_open, sum_of_rows=zero + AXES + text)
    modified, _, operators = applied(model, feeds)
    assert modified
    assert sum(name in ("MatMul", "Gemm") for name in operators) == left


# Operands beside each other in one, and how many Transposes lay them out.
SUM = "w = Gemm <transA = 1> (both, g) b = ReduceSum(g, rows) "
FLAT = "both = Flatten <axis = 2> (two) "
LEFT, READ = "c = Neg(b)", "k = ReduceMax <keepdims = 0> ({}) c = Mul(b, k)"
BESIDE = {
    "matrices": ("k = Sin(flat) both = Concat <axis = 1> (flat, k) " + SUM + LEFT, 2),
    "sequences": ("k = Sin(ys) two = Concat <axis = 2> (ys, k) " + FLAT + SUM + LEFT, 2),
    "matrix behind the sum": (
        "k = Sin(ys) n = Neg(ys) two = Concat <axis = -1> (ys, k, n) b = ReduceSum(g, rows) "
        + FLAT + "w = Gemm <transA = 1> (both, g) " + LEFT,
        3,
    ),
    "read besides": ("both = Concat <axis = 1> (flat, flat) " + SUM + READ.format("both"), 1),
    "read as a sequence": ("two = Concat <axis = 2> (ys, ys) " + FLAT + SUM + READ.format("two"), 1),
    "many": ("k = Sin(flat) both = Concat <axis = 1> (flat, k, flat, k, flat) " + SUM + LEFT, 1),
    "below each other": (
        "part = Slice(flat, rows, one, rows) rest = Slice(flat, one, most, rows) "
        "both = Concat <axis = 0> (part, rest) " + SUM + LEFT,
        1,
    ),
    "no sum": ("both = Concat <axis = 1> (flat, flat) w = Gemm <transA = 1> (both, g) c = Neg(flat)", 1),
}  # fmt: skip


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("form", BESIDE)
def test_operands_beside_each_other_are_laid_out_each(form: str, is_open: bool) -> None:
    """What is joined with others anyhow is not joined twice."""
    text, transposes = BESIDE[form]
    most = "most = Constant <value = int64[1] {9223372036854775807}> () "
    model, feeds = case(columns=512, is_open=is_open, sum_of_rows=most + AXES + text)
    modified, _, operators = applied(model, feeds)
    assert modified
    assert operators.count("Transpose") == transposes


def applied(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[bool, list[str], list[str]]:
    """Whether the pass changed something, why not, and the operators that are left; results are as before."""
    work = ir.from_proto(model)
    InferShapesPass()(work)
    InvariantHoisting()(work)
    context = Context(work)
    step = KernelSelection(context)
    step.verify_each = True
    modified = step(work).modified
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    for optimised in (False, True):
        assert_same(run(model, feeds, optimised=optimised), run(after, feeds, optimised=optimised))
    reasons = [refusal.reason for refusal in context.trace.refusals]
    return modified, reasons, [node.op_type for node in after.graph.node]


@tried(12)
@given(data=st.data())
def test_results_are_kept(data: st.DataObject) -> None:
    model, feeds = case(
        width=data.draw(st.sampled_from([1, 3, 8])),
        product=data.draw(st.sampled_from(["Gemm", "MatMul"])),
        flatten=data.draw(st.sampled_from(list(FLATTEN))),
        is_open=data.draw(st.booleans()),
    )
    assert applied(model, feeds)[0]


@pytest.mark.parametrize(
    ("forms", "reason"),
    [
        ({"steps": 4}, "few rows"),
        ({"columns": 500}, "not known to cost less"),
        ({"width": 1500}, "not known to cost less"),
        ({"kind": "double"}, "only products of float32"),
        ({"product": "scaled"}, None),
        ({"product": "both transposed"}, None),
    ],
    ids=str,
)
def test_others_are_left_alone(forms: dict[str, object], reason: str | None) -> None:
    modified, refusals, _ = applied(*case(**forms))  # type: ignore[arg-type]
    assert not modified
    assert len(refusals) == (reason is not None)
    assert reason is None or reason in refusals[0]


def test_joined_golden(golden: Golden) -> None:
    work = ir.from_proto(case(columns=384, sum_of_rows=AXES + JOINED["two and a sum"][0])[0])
    InferShapesPass()(work)
    before = dump(work)
    assert KernelSelection()(work).modified
    golden("loop_kernel-selection_joined", before=before, after=dump(work))


def test_golden(golden: Golden) -> None:
    work = ir.from_proto(case()[0])
    InferShapesPass()(work)
    before = dump(work)
    assert KernelSelection()(work).modified
    golden("loop_kernel-selection_layout", before=before, after=dump(work))


CHAIN = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[3,2] xs, float[2] first, float[4,3] a, float[4,5] b, float[3,6] c) => (float[2] last, float[5,6] w) {
  last = Scan <num_scan_inputs = 1, body = step (float[2] s, float[2] x) => (float[2] u) { u = Add(s, x) }> (first, xs)
  at = Transpose <perm = [1, 0]> (a)
  ab = MatMul(at, b)
  abt = Transpose <perm = [1, 0]> (ab)
  w = MatMul(abt, c)
}"""


def test_products_of_products_are_written_once_each() -> None:
    """The second reads what the first has become."""
    model = onnx.parser.parse_model(CHAIN)
    random = np.random.default_rng(0)
    shapes = {"xs": (3, 2), "first": (2,), "a": (4, 3), "b": (4, 5), "c": (3, 6)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    selected = ir.from_proto(model)
    KernelSelection()(selected)
    verify(selected)
    assert [node.op_type for node in selected.graph].count("Gemm") == 2
    assert_same(run(ir.to_proto(selected), feeds), run(model, feeds))
