"""The logistic function, written out in a loop: where it may become onnxruntime's operator, and where not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

import lstm_lower as ll
from lstm_lower.graph.dump import dump
from lstm_lower.passes.loops.sigmoid_recognition import SigmoidRecognition
from lstm_lower.passes.trace import Trace
from tests.conftest import Golden

# The state scales the gate; `read` makes the step's output of it.
MODEL = """
<ir_version: 9, opset_import: ["" : 18]>
loop (float[5, 2] x, float[2] start) => (float[2] last, float[5, 2] outputs) {
  last, outputs = Scan <num_scan_inputs = 1,
    body = step (float[2] state, float[2] row) => (float[2] next, float[2] out) {
    one = Constant <value = float {1.0}> ()
    sum = Add (row, state)
    negative = Neg (sum)
    power = Exp (negative)
    total = Add (power, one)
    gate = Reciprocal (total)
    next = Mul (gate, state)
    out = %s
  }> (start, x)
}
"""


def optimized(read: str) -> tuple[onnx.ModelProto, onnx.ModelProto, Trace]:
    model = parser.parse_model(MODEL % read)
    trace = Trace()
    return model, ll.optimize(model, trace=trace), trace


def body_ops(model: onnx.ModelProto) -> list[str]:
    scans = [node for node in model.graph.node if node.op_type == "Scan"]
    return [node.op_type for scan in scans for node in scan.attribute[0].g.node] + [
        node.op_type for scan in scans for attribute in scan.attribute[1:] for node in attribute.g.node
    ]


@pytest.mark.parametrize("read", ["Sub (one, gate)", "Mul (gate, gate)", "Identity (state)"])
def test_gates_become_the_operator(read: str) -> None:
    model, result, _ = optimized(read)
    assert body_ops(result).count("Sigmoid") == 1
    assert "Exp" not in body_ops(result)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((5, 2)).astype(np.float32), "start": np.ones(2, np.float32)}
    results = [ort.InferenceSession(m.SerializeToString()).run(None, feeds) for m in (model, result)]
    for before, after in zip(*results, strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("read", ["Log (gate)", "Div (state, gate)", "Identity (gate)"])
def test_what_could_tell_the_difference_keeps_the_formula(read: str) -> None:
    """A logarithm, a quotient, and whoever reads the model's output."""
    _, result, trace = optimized(read)
    assert "Sigmoid" not in {node.op_type for node in result.graph.node} | set(body_ops(result))
    assert any(refusal.pass_name == "sigmoid-recognition" for refusal in trace.refusals)


def test_a_logarithm_far_out_stays_finite() -> None:
    _, result, _ = optimized("Log (gate)")
    feeds = {"x": np.full((5, 2), -40, np.float32), "start": np.zeros(2, np.float32)}
    _, logarithms = ort.InferenceSession(result.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(logarithms, np.full((5, 2), -40), rtol=1e-6)


@pytest.mark.parametrize("last", ["Reciprocal (total)", "Div (one, total)"])
@pytest.mark.parametrize("optimise", [ll.optimize, ll.lower])
def test_outside_loops_small_results_keep_their_digits(
    last: str, optimise: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> None:
    """Near -7 onnxruntime's operator is off by 1e-5 of the result."""
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]> flat (float[N] x) => (float[N] y) {{
        one = Constant <value = float {{1.0}}> () negative = Neg (x) power = Exp (negative) total = Add (power, one)
        y = {last} }}""")
    x = np.linspace(-20, 20, 401).astype(np.float32)
    (y,) = ort.InferenceSession(optimise(model).SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-x.astype(np.float64))), rtol=5e-7)


@pytest.mark.slow
@given(
    read=st.sampled_from(["Sub (one, gate)", "Mul (gate, row)", "Add (gate, state)", "Log (gate)", "Div (one, gate)"]),
    scale=st.sampled_from([0.1, 1, 20, 80]),
    seed=st.integers(0, 99),
)
def test_results_stay_the_same(read: str, scale: float, seed: int) -> None:
    work = ir.from_proto(parser.parse_model(MODEL % read))
    changed = SigmoidRecognition()(work)
    assert changed.modified == (read.split(maxsplit=1)[0] in ("Sub", "Mul", "Add"))
    feeds = {
        "x": (scale * np.random.default_rng(seed).standard_normal((5, 2))).astype(np.float32),
        "start": np.ones(2, np.float32),
    }
    models = parser.parse_model(MODEL % read), ir.to_proto(work)
    results = [ort.InferenceSession(model.SerializeToString()).run(None, feeds) for model in models]
    for before, after in zip(*results, strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-6, atol=1e-7 * max(1, scale))


def test_sigmoid_recognition(golden: Golden) -> None:
    work = ir.from_proto(parser.parse_model(MODEL % "Sub (one, gate)"))
    before = dump(work)
    assert SigmoidRecognition()(work).modified
    golden("loop_sigmoid-recognition", before=before, after=dump(work))
