"""Gradients of moving operators within the steps of a Scan, against central differences in float64."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from tests.support.differences import check

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
