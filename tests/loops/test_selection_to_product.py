"""Selections that a comparison decides: onnxruntime's Where branches at each element, a product does not."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.graph import standard as std
from lstm_lower.graph.dump import dump
from lstm_lower.passes.loops.selection_to_product import LEAST, SelectionToProduct
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.targets.table import TARGETS
from tests.conftest import Golden
from tests.support.examples import tried

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '
RELU = """
(float[N,64,64] x, float[N,64,64] dy, float[N,64,64] h) => (float[N,64,64] dx, float[N,64,64] bounded)
{
  zero = Constant <value = float {0.0}> ()
  y = Relu(x) off = LessOrEqual(y, zero) dx = Where(off, zero, dy)
  t = Tanh(h) low = Greater(x, zero) high = Less(x, h) inside = And(low, high) bounded = Where(inside, t, zero)
}"""
# A rectangle of float[T,128] x, y, float[128] v, bool[T,128] m; whether it is written as a product.
CASES = {
    "c = Less(x, y) z = Where(c, x, zero)": True,
    "c = Less(x, v) z = Where(c, zero, y)": True,
    "c = GreaterOrEqual(x, zero) n = Not(c) z = Where(n, y, zeros)": True,
    "c = Less(x, y) d = Greater(x, zero) e = Or(c, d) z = Where(e, x, zero)": True,
    # Both operands are numbers, a number is no zero, or it is one for all.
    "c = Less(x, y) z = Where(c, x, y)": False,
    "c = Less(x, y) z = Where(c, x, one)": False,
    "c = Less(x, y) z = Where(c, one, zero)": False,
    "c = Less(x, y) z = Where(c, v, zero)": False,
    # What decides is not known to be a comparison of numbers, or is one of few.
    "z = Where(m, x, zero)": False,
    "c = Less(x, y) e = And(c, m) z = Where(e, x, zero)": False,
    "c = Less(v, zero) z = Where(c, x, zero)": False,
    "c = Equal(x, y) z = Where(c, x, zero)": False,
    "s = Shape(x) o = Expand(one, s) w = Less(v, zero) f = Expand(w, s) z = Where(f, x, zero)": False,
}
WILD = np.array([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 3e38, -3e38], np.float32)


def parsed(text: str) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(HEADER + text))
    InferShapesPass()(model)
    return model


def of_case(nodes: str, rows: str = "T", kind: str = "float") -> ir.Model:
    shape = f"[{rows},128]"
    return parsed(f"""({kind}{shape} x, {kind}{shape} y, {kind}[128] v, bool{shape} m) => ({kind}{shape} z)
{{ zero = Constant <value = {kind} {{0.0}}> () zeros = Constant <value = {kind}[1,1] {{0.0}}> ()
  one = Constant <value = {kind} {{1.0}}> () {nodes} }}""")


def is_rewritten(model: ir.Model) -> bool:
    return SelectionToProduct()(model).modified


def test_golden(golden: Golden) -> None:
    model = parsed(RELU)
    before = dump(model)
    assert is_rewritten(model)
    golden("loop_selection-to-product", before=before, after=dump(model))


@pytest.mark.parametrize("nodes", CASES)
def test_which_are_rewritten(nodes: str) -> None:
    model = of_case(nodes, rows=str(LEAST // 128))
    assert is_rewritten(model) == CASES[nodes]
    assert not is_rewritten(model)


def test_only_large_tensors_of_floats() -> None:
    nodes = "c = Less(x, y) z = Where(c, x, zero)"
    assert is_rewritten(of_case(nodes, rows=str(LEAST // 128), kind="double"))
    assert not is_rewritten(of_case(nodes, rows=str(LEAST // 128 - 1)))
    halves = "(float16[64,128] x, float16 zero) => (float16[64,128] z) { c = Less(x, x) z = Where(c, x, zero) }"
    assert not is_rewritten(parsed(halves))


@tried(40)
@given(
    nodes=st.sampled_from([nodes for nodes, expected in CASES.items() if expected]),
    kind=st.sampled_from(["float", "double"]),
    rows=st.sampled_from([0, 1, 3, 64]),
    seed=st.integers(0, 2**31),
    wild=st.booleans(),
)
def test_selection_to_product_keeps_results(nodes: str, kind: str, rows: int, seed: int, wild: bool) -> None:
    model = of_case(nodes, kind=kind)
    before = ir.from_proto(ir.to_proto(model))
    # An open size counts as 64.
    assert is_rewritten(model)
    random, dtype = np.random.default_rng(seed), np.float32 if kind == "float" else np.float64
    feeds = {
        name: (random.choice(WILD, shape) if wild else random.normal(size=shape)).astype(dtype)
        for name, shape in (("x", (rows, 128)), ("y", (rows, 128)), ("v", (128,)))
    }
    feeds["m"] = random.random((rows, 128)) < 0.5
    expected, found = (ll.Session(ir.to_proto(m)).run(feeds)["z"] for m in (before, model))
    np.testing.assert_array_equal(found, expected, strict=True)


def test_a_gradient_through_a_root_at_zero_stays_zero() -> None:
    """The gradient of a root is infinite at zero, and that of ReLU hands nothing of it on, as in PyTorch."""
    model = parsed("(float[64,128] x) => (float loss) { y = Relu(x) r = Sqrt(y) loss = ReduceSum<keepdims = 0>(r) }")
    lowered = ll.optimize(ir.to_proto(ll.gradient(model, of="loss", wrt=["x"])))
    assert any(node.op_type == "IsNaN" for node in lowered.graph.node)
    x = np.zeros((64, 128), np.float32)
    x[0, :4] = -1, 4, np.nan, np.inf
    gradient = ll.Session(lowered).run({"x": x})["grad/x"]
    expected = np.zeros_like(x)
    expected[0, :4] = 0, 0.25, np.nan, 0
    np.testing.assert_array_equal(gradient, expected)


def test_an_optimised_model_stays_as_it_is() -> None:
    optimised = ll.optimize(parsed(RELU))
    assert any(map(std.IsNaN.matches, optimised.graph))
    assert dump(ll.optimize(optimised)) == dump(optimised)


@pytest.mark.parametrize("target", TARGETS)
def test_for_processors_alone(target: str) -> None:
    model = ir.to_proto(parsed(RELU.replace("N,", "2,")))
    lowered = ll.lower(model, target=target)
    assert not any(node.op_type == "IsNaN" for node in lowered.graph.node)
    random = np.random.default_rng(0)
    feeds = {name: random.normal(size=(2, 64, 64)).astype(np.float32) for name in ("x", "dy", "h")}
    expected, found = (ll.Session(m).run(feeds) for m in (model, lowered))
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
