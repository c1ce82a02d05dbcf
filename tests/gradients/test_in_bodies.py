"""Gradients within the steps of a Scan: of moving operators, against central differences in float64; stopped ones."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import lstm_lower as ll
from lstm_lower.graph import standard as std
from tests.support.differences import check
from tests.support.loop_checks import assert_same, run

# From the state h [B, 4], the input x [B, 4] and the weights w [4, 4] to z of the state's shape.
STEPS = {
    "pad": """p = Constant <value = int64[4] {0, 1, 0, 2}> ()  a = Pad <mode = "reflect"> (h, p)
        s = Constant <value = int64[1] {1}> ()  e = Constant <value = int64[1] {5}> ()  b = Slice(a, s, e, s)
        z = Mul(b, x)""",
    "gather elements": "i = ArgMax <axis = 1> (x)  a = GatherElements <axis = 1> (h, i)  z = Mul(a, x)",
    "scatter": """i = ArgMax <axis = 1> (x)  u = Sin(x)  v = GatherElements <axis = 1> (u, i)
        z = ScatterElements <axis = 1, reduction = "mul"> (h, i, v)""",
    "einsum": 'z = Einsum <equation = "bi,ij,bj->bj"> (h, w, x)',
    "top": "k = Constant <value = int64[1] {4}> ()  a, i = TopK(h, k)  z = Mul(a, x)",
    "tile": """r = Constant <value = int64[2] {1, 2}> ()  a = Tile(h, r)
        s, t = Split <axis = 1, num_outputs = 2> (a)  b = Mul(s, x)  z = Mul(b, t)""",
    "trilu": "a = Trilu(w)  b = MatMul(h, a)  z = Mul(b, x)",
    "sequence": """s = SequenceConstruct(h, x)  i = Constant <value = int64 {0}> ()
        j = Constant <value = int64 {1}> ()  a = SequenceAt(s, i)  b = SequenceAt(s, j)  z = Mul(a, b)""",
}


@pytest.mark.parametrize("name", STEPS)
def test_step(name: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
      g (double[T,B,4] xs, double[B,4] h0, double[4,4] w) => (double[B,4] hT) {{
        hT = Scan <num_scan_inputs = 1, body = f (double[B,4] h, double[B,4] x) => (double[B,4] h1) {{
          {STEPS[name]}  y = MatMul(z, w)  h1 = Tanh(y)
        }}> (h0, xs) }}""")
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape) for name, shape in {"xs": (3, 2, 4), "h0": (2, 4), "w": (4, 4)}.items()}
    check(model, feeds, tolerance=1e-7)


# From the state h [4], the input x [4] and h0 [4] from outside to the state h1 and the output y; the node that stops
# gradients is told by its result.
STOPPING = {
    "an output": ("y", "y = Identity(x)  h1 = Mul(h, x)"),
    "an output of the state": ("y", "h1 = Mul(h, x)  y = Identity(h1)"),
    "a value from outside": ("y", "y = Identity(h0)  h1 = Mul(h, x)"),
    "a state that stays": ("h1", "h1 = Identity(h)  y = Mul(h, x)"),
    "a term of a sum": ("s", "s = Identity(x)  h1 = Add(h, s)  y = Mul(x, x)"),
    "a term of two sums": ("s", "a = Mul(x, x)  s = Identity(a)  h1 = Add(h, s)  y = Add(s, x)"),
}


@pytest.mark.parametrize("schedule", ["auto", "unroll", "chunk:2"])
@pytest.mark.parametrize("name", STOPPING)
def test_gradients_stop_in_an_optimised_loop_too(name: str, schedule: str) -> None:
    stopping, step = STOPPING[name]
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
      g (double[T,4] xs, double[4] h0) => (double loss) {{
        hT, ys = Scan <num_scan_inputs = 1, body = f (double[4] h, double[4] x) => (double[4] h1, double[4] y)
          {{ {step} }}> (h0, xs)
        a = ReduceSum <keepdims = 0> (hT)  b = ReduceSumSquare <keepdims = 0> (ys)  loss = Add(a, b) }}""")
    feeds = {"xs": np.arange(12.0).reshape(3, 4) / 7, "h0": np.arange(4.0)}

    def gradients(of: onnx.ModelProto) -> list[np.ndarray]:
        return run(ll.gradient(of, wrt=["xs", "h0"]), feeds)

    flowing = gradients(model)
    (body,) = [attribute.g for node in model.graph.node for attribute in node.attribute if attribute.name == "body"]
    (node,) = [node for node in body.node if node.output[0] == stopping]
    node.metadata_props.add(key=std.STOPPED, value="true")
    expected = gradients(model)
    assert any(not np.array_equal(a, b) for a, b in zip(flowing, expected, strict=True))
    assert_same(expected, gradients(ll.optimize(model, schedule, verify_each=True)))
