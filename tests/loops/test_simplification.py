"""Rules of algebraic simplification, each on the smallest graph that it applies to, and on one that it does not."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from lstm_lower.graph.builder import replace
from lstm_lower.passes.loops.algebraic_simplification import AlgebraicSimplification
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.product_distribution import ProductDistribution
from lstm_lower.passes.model_pass import Context
from lstm_lower.passes.shapes import InferShapesPass
from tests.loops.test_each_pass import check, parsed
from tests.support.loop_models import LoopModel

# The number of steps of `xs`; 0, 1, 2, ... up to it; and the same number as other nodes find it.
COUNT = """
  n = Shape <start = 0, end = 1> (xs) axis0 = Constant <value = int64[1] {0}> () steps = Squeeze(n, axis0)
  zero = Constant <value = int64 {0}> () one = Constant <value = int64 {1}> () all = Range(zero, steps, one)
  axis1 = Constant <value = int64[1] {1}> () rest = Constant <value = int64[2] {4, 2}> () """
# What a graph does to the sequence `xs` of shape [T, 4, 2] or the matrix `k` -> the operators that are left of it.
LEFT = {
    "y = Gather(xs, all)": "",
    "narrow = Cast <to = 6> (all) y = Gather(xs, narrow)": "",
    "s = Concat <axis = 0> (n, rest) e = ConstantOfShape(s) p = Unsqueeze(all, axis1) y = ScatterND(e, p, xs)": "",
    "s = Shape(xs) e = ConstantOfShape(s) axes = Constant <value = int64[2] {1, 2}> () p = Unsqueeze(all, axes) "
    "i = Expand(p, s) y = ScatterElements <axis = 0, reduction = \"add\"> (e, i, xs)": "",
    "s = Shape(xs) axes = Constant <value = int64[2] {1, 2}> () p = Unsqueeze(all, axes) i = Expand(p, s) e = Neg(xs) "
    "y = ScatterElements <axis = 0> (e, i, xs)": "",
    "s = Shape(xs) four = Constant <value = int64[1,4,1] {0, 1, 2, 3}> () i = Expand(four, s) e = ConstantOfShape(s) "
    "y = ScatterElements <axis = 1> (e, i, xs)": "",
    "a = Shape <start = 0, end = 1> (xs) none = Sub(a, n) s = Concat <axis = 0> (none, rest) e = ConstantOfShape(s) "
    "y = Concat <axis = 0> (xs, e)": "",
    "s = Shape(xs) o = Constant <value = float[1,1,1] {3.0}> () e = Expand(o, s) y = Mul(xs, e)": "Mul",
    "s = Shape(xs) o = Constant <value = float[1,1,1] {3.0}> () e = Tile(o, s) y = Sub(e, xs)": "Sub",
    "s = Shape(xs) o = ReduceMax(xs) e = Expand(o, s) d = Exp(e) f = Div(d, o) y = Add(xs, f)": "ReduceMax Exp Div Add",
    "s = Shape(xs) e = ConstantOfShape <value = float[1] {2.0}> (s) y = Mul(e, xs)": "Mul",
    "s = Shape(xs) o = ReduceMax(xs) e = Expand(o, s) y = Mul(e, e)": "Shape ReduceMax Mul Expand",
    # Where it is the operand that gives the result its shape.
    "s = Shape(xs) e = Expand(k, s) y = Mul(e, k)": "Shape Mul Expand",
    "s = Concat <axis = 0> (n, rest) e = ConstantOfShape <value = float[1] {2.0}> (s) y = Mul(e, k)":
        "Shape Concat ConstantOfShape Mul",
    "h = Expand(k, rest) s = Shape(xs) e = ConstantOfShape <value = float[1] {2.0}> (s) y = PRelu(e, h)":
        "Expand Shape ConstantOfShape PRelu",
    "a = Unsqueeze(xs, axis1) t = Transpose <perm = [1, 0, 2, 3]> (a) s = Shape(xs) y = Reshape(t, s)": "",
    "s = Constant <value = int64[2] {-1, 8}> () f = Reshape(xs, s) t = Shape(xs) y = Reshape(f, t)": "",
    "t = Transpose <perm = [0, 2, 1]> (xs) s = Shape(xs) y = Reshape(t, s)": "Transpose Shape Reshape",
    "a = Unsqueeze(xs, axis1) y = Gather <axis = 1> (a, zero)": "",
    "a = Unsqueeze(xs, axis1) y = Gather <axis = 0> (a, zero)": "Unsqueeze Gather",
    # Another order, another number, or another axis.
    "b = Sub(steps, one) t = Neg(one) back = Range(b, t, t) y = Gather(xs, back)":
        "Shape Squeeze Sub Range Gather",
    "t = Add(steps, one) more = Range(one, t, one) p = Sub(more, one) y = Gather(xs, p)":
        "Shape Squeeze Add Range Sub Gather",
    "s = Shape(xs) e = Exp(xs) axes = Constant <value = int64[2] {1, 2}> () p = Unsqueeze(all, axes) i = Expand(p, s) "
    "y = ScatterElements <axis = 0, reduction = \"add\"> (e, i, xs)":
        "Shape Squeeze Range Shape Exp Unsqueeze Expand ScatterElements",
    "s = Shape(xs) four = Constant <value = int64[1,4,1] {0, 1, 3, 2}> () i = Expand(four, s) e = ConstantOfShape(s) "
    "y = ScatterElements <axis = 1> (e, i, xs)": "Shape Expand ConstantOfShape ScatterElements",
    "y = Gather <axis = 1> (xs, all)": "Shape Squeeze Range Gather",
}  # fmt: skip


def operators(case: LoopModel, *passes: type) -> str:
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    for step in (*passes, AlgebraicSimplification, DeadCodeElimination):
        step()(work)
    return " ".join(node.op_type for node in work.graph if node.op_type not in ("Constant", "Identity"))


@pytest.mark.parametrize("form", LEFT)
def test_what_is_left(form: str) -> None:
    case = parsed(f"g (float[T,4,2] xs, float[1,2] k) => (float[a,b,c] y) {{ {COUNT} {form} }}", xs=(3, 4, 2), k=(1, 2))
    check(case, AlgebraicSimplification())
    assert operators(case) == LEFT[form]


# What outputs copy -> who makes them: the value itself may be one output, under its name, but an input or a second one
# needs a copy.
COPIES = {
    "a = Exp(x) y = Identity(a) z = Neg(a)": ["Exp", "Neg"],
    "a = Exp(x) y = Identity(a) z = Identity(a)": ["Exp", "Identity"],
    "y = Exp(x) z = Identity(y)": ["Exp", "Identity"],
    "y = Identity(x) z = Neg(x)": ["Identity", "Neg"],
}


@pytest.mark.parametrize("form", COPIES)
def test_outputs_are_copied_only_where_they_have_to_be(form: str) -> None:
    case = parsed(f"g (float[3] x) => (float[a] y, float[b] z) {{ {form} }}", x=(3,))
    check(case, AlgebraicSimplification())
    work = ir.from_proto(case.model)
    AlgebraicSimplification()(work)
    outputs = work.graph.outputs
    assert [value.name for value in outputs] == ["y", "z"]
    assert [node.op_type for value in outputs if (node := value.producer()) is not None] == COPIES[form]
    assert len(work.graph) == 2


# A part of a product, in a loop; the other part is read behind the loop, or by nobody.
PART = """
loops (float[2,3] s0, float[4,2,6] xs, float[6,5] w) => (float[2,3] last)
{ last = Scan <num_scan_inputs = 1, body = step (float[2,3] s, float[2,6] x) => (float[2,3] u)
  { t = Concat <axis = 1> (s, s) m = Mul(t, x) p = MatMul(m, w)
    a = Constant <value = int64[1] {2}> () b = Constant <value = int64[1] {5}> () i = Constant <value = int64[1] {1}> ()
    u = Slice(p, a, b, i) }> (s0, xs) }"""


def test_columns_that_nobody_reads_are_not_computed() -> None:
    case = parsed(PART, s0=(2, 3), xs=(4, 2, 6), w=(6, 5))
    check(case, ProductDistribution(), applies=True)
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    ProductDistribution()(work)
    (body,) = (node.attributes["body"].as_graph() for node in work.graph if "body" in node.attributes)
    (product,) = (node for node in body if node.op_type == "MatMul")
    assert product.outputs[0].shape == [2, 3]


def test_numbers_without_a_sign_are_not_negated() -> None:
    """There is no Neg for them: 0 - x wraps around."""
    work = ir.from_proto(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 18]>
            g (uint32[3] x) => (uint32[3] y) <uint32[3] zeros = {0, 0, 0}> { y = Sub(zeros, x) }"""
        )
    )
    AlgebraicSimplification()(work)
    onnx.checker.check_model(ir.to_proto(work), full_check=True)
    assert [node.op_type for node in work.graph] == ["Sub"]


def test_rules_are_asked_again_of_what_reads_something_else_now() -> None:
    model = ir.from_proto(
        onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]> g (float[4,2] x, int32 k) => (float[A,2] y)
        { start = Cast <to = 7> (k) zero = Constant <value = int64 {0}> () one = Constant <value = int64 {1}> ()
          end = Constant <value = int64 {4}> () places = Range (start, end, one) narrow = Cast <to = 6> (places)
          taken = Gather <axis = 0> (x, narrow) y = Neg (taken) }""")
    )
    context = Context(model)
    assert not AlgebraicSimplification(context)(model).modified
    start, zero = (node.outputs[0] for node in list(model.graph)[:2])
    replace(start, zero, context.space)
    context.changed(preserved=True, told=True)
    AlgebraicSimplification(context)(model)
    assert [node.inputs[0].name for node in model.graph if node.op_type == "Neg"] == ["x"]
